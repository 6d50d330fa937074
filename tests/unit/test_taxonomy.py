"""Kernel taxonomy: what a kernel does, how and in which precision, told from its name."""

import csv
import gzip
import json
import re
import sqlite3
import time
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from meddpm import tables
from meddpm.profiling import taxonomy as module
from meddpm.profiling.taxonomy import OTHER, Kind, categories, classify, taxonomy

PROFILES = Path(__file__).parents[2].parent / "shared" / "profiles"

VECTORIZED = "void at::native::vectorized_elementwise_kernel<4, at::native::"
UNROLLED = "void at::native::unrolled_elementwise_kernel<at::native::"
STRIDED = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::"
LAMBDA = "(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#2}::operator()() const::{lambda"
NCU = "void at::vectorized_elementwise_kernel<4, at::<unnamed>::"
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<"
FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
AGENT = "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::"
MIOPEN = "_ta1x8x2x1_1x4x1x64_tb1x8x2x1_1x4x1x64"
TENSILE = "UserArgs_MT64x16x32_MI16x16x1_SN_LDSB0_AFC1_ISA90a_IU1_K1"
MANGLED = "_ZN2at6native29vectorized_elementwise_kernelILi4E"

IMPLICIT, EXPLICIT, DIRECT, WINOGRAD, FFT = "implicit GEMM", "explicit GEMM", "direct", "Winograd", "FFT"

# What a name tells, as category, precision, detail, and names that tell it.
NAMES: dict[tuple[str, str | None, str | None], list[str]] = {
    # cuDNN, xmma
    ("convolution forward", "fp32", IMPLICIT): [
        "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8_g1_ffma_aligna4_cudnn",
        "sm86_xmma_fprop_implicit_gemm_indexed_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize32x32x8_ffma_execute_kernel"
        "_cudnn",
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "volta_scudnn_128x64_relu_xregs_large_nn_v1",
        "cudnn_ampere_scudnn_128x32_relu_medium_nn_v1",
        "cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1",
        "maxwell_scudnn_128x64_stridedB_splitK_small_nn_v0",
        "turing_scudnn_128x128_relu_small_nn_v1",
        "void implicit_convolveNd_sgemm<float, 3, 128, 5, 5, 3, 3, 3, 1, false, true>(int, int, int, float const*)",
        "void cudnn::cnn::implicit_convolveNd_sgemm<float, 3, 1024, 5, 5, 3, 3, 3, 1, false, true>(int, float const*)",
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int, float const*)",
        "void cudnn::detail::implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, true>(int, int, int)",
        "void precomputed_convolve_sgemm<float, 1024, 5, 5, 4, 3, 3, 1, false>(int, int, int, float const*)",
        "volta_fp16_scudnn_fp16_128x64_relu_small_nn_v1",
        "_ZN5cudnn3cnn25implicit_convolveNd_sgemmIfLi3ELi128ELi5ELi5ELi3ELi3ELi3ELi1ELb0ELb1EEEviiiPKT_iPS2_S4_",
    ],
    ("convolution forward", "tf32", IMPLICIT): [
        "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warpgroupsize1x1x1_cudnn",
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_g1_cudnn",
        "sm80_xmma_fprop_implicit_gemm_indexed_wo_smem_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x32x16__5x_cudnn",
        "sm86_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64_16x10_nhwc_align4>(P)",
        "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc_align4>(P)",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_precomputed_tf32_128x256_16x3_nhwc_align4>(P)",
    ],
    ("convolution forward", "bf16", IMPLICIT): [
        "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x256x64_warpgroupsize2x1x1_cudnn",
        "sm80_xmma_fprop_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x64_stage3_cudnn",
        "sm100_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_ndhwckrsc_ndhwc_tilesize128x128x64_cudnn",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_128x128_32x5_nhwc_align8>(P)",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x64x8_wt64x16x4_ws1x1_wr2x2" + MIOPEN,
    ],
    ("convolution forward", "fp16", IMPLICIT): [
        "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1_cudnn",
        "sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_cudnn",
        "sm80_xmma_fprop_image_first_layer_f16f16_f32_f16_nhwckrsc_nhwc_hmma_k64r7s7c4_stride2x2_cudnn",
        "sm70_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nchwkcrs_nchw_tilesize128x128x32_stage1_cudnn",
        "volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
        "volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1",
        "Volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1",
        "volta_h884cudnn_256x128_ldg8_relu_exp_small_nhwc_tn_v1",
        "turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_interior_nhwc_tn_v1",
        "turing_h1688cudnn_256x128_ldg8_relu_exp_medium_nhwc_tn_v1",
        "ampere_fp16_s16816cudnn_fp16_128x64_sliced1x2_ldg8_relu_f2f_exp_interior_nhwc_tn_v1",
        "volta_hcudnn_128x64_relu_small_nn_v1",
        "void cutlass_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_128x128_32x5_nhwc_align8>(P)",
        "void cudnn::detail::implicit_convolve_hgemm<__half, 1024, 5, 5, 3, 3, 3, 1, false, true>(int, __half const*)",
        "void xmma_cudnn::gemm::kernel<xmma_cudnn::implicit_gemm::fprop::Kernel_traits<xmma_cudnn::Volta_hmma_fp32"
        "_traits>>",
        "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2_gkgs" + MIOPEN,
        "void ck::tensor_operation::device::(anonymous namespace)::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle"
        "<ck::GridwiseGemmMultipleABD_xdl_cshuffle<_Float16, _Float16, float, _Float16>>(P)",
        "sm80_xmma_deconv_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x64x64_stage3",
        "trt_ampere_h16816cudnn_128x64_ldg8_relu_singleBuffer_interior_nhwc_tn_v1",
    ],
    ("convolution forward", "int8", IMPLICIT): [
        "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32_tilesize128x128x64"
        "_cudnn",
        "trt_volta_int8_i8816cudnn_int8_128x64_ldg16_relu_singleBuffer_small_nt_v1",
        "volta_fp32_icudnn_int8x4_128x64_relu_small_nn_v1",
    ],
    ("convolution forward", "fp8", IMPLICIT): [
        "sm90_xmma_fprop_implicit_gemm_e4m3e4m3_e4m3f32_f32_nhwckrsc_nhwc_tilesize128x128x64_cudnn",
    ],
    ("convolution forward", None, IMPLICIT): [
        "void cask_plugin__5x_cudnn::xmma__5x_cudnn::init_device_workspace_kernel<xmma__5x_cudnn::implicit_gemm"
        "::fprop::P>",
        "void cask_plugin__5x_cudnn::init_device_workspace_kernel<xmma__5x_cudnn::Warp_specialized_params_non"
        "_template<P>>",
        "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23Imp...",
        "void cudnn::cnn::kern_precompute_indices<false>(int*, int, int, int, int, int, int)",
        "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)",
        "void cudnn::gemm::computeBOffsetsKernel(cudnn::gemm::ComputeBOffsetsParams)",
        "gridwise_convolution_implicit_gemm_v4r1_nchw_kcyx_nkhw_lds_double_buffer",
        "gridwise_convolution_forward_implicit_gemm_v4r4_xdlops_nchw_kcyx_nkhw",
        "igemm_v4r1_dynamic",
    ],
    ("convolution forward", "fp32", WINOGRAD): [
        "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
        "cudnn_infer_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(cudnn::winograd_nonfused"
        "::WinogradDataParams)",
        "void cudnn::winograd_nonfused::winogradForwardFilter4x4<float, float>(P)",
        "void cudnn::winograd_nonfused::winogradForwardOutput9x9_5x5<float, float>(P)",
        "void cudnn::winograd::generateWinogradTilesKernel<0, float, float>(P<float, float>)",
        "miopenSp3AsmConv_v21_1_3_gfx9_fp32_f2x3_stride1",
    ],
    ("convolution forward", None, WINOGRAD): [
        "miopenSp3AsmConv3x3F",
        "miopenSp3AsmConvFury_v4_6_0_gfx12",
        "gcnAsmWinogradXformData_3_6_3_6",
    ],
    ("convolution forward", "fp32", FFT): [
        "void fft2d_r2c_32x32<float, false, 5u, true>(float2*, float const*, int, cudnn::reduced_divisor, bool, int2)",
        "void fft2d_c2r_32x32<float, false, false, 0u, false, false>(float*, float2 const*, int, int)",
        "void fft2d_r2c_64x64<float>(float2*, float const*, int, int, int, int, int, int, int, int)",
        "void fft3d_r2c_16x16x16<float, float, float2>(float2*, float*, int3, int3, int3, int3, int3, bool)",
        "void fft1d_r2c_32<float, float, float2, false, false>(float2*, float const*, int, int3, int3, int2, int2)",
        "void DSE::regular_fft_pad<0, 1, 128, 16, 32, 1, float, float, float2>(float2*, float*, int, int3, bool)",
        "void DSE::vector_fft<0, 1, 128, 8, 8, 1, float, float, float2>(float2*, float2*, int, int3, int3)",
        "void compute_gemm_pointers(float2**, float2 const*, int, float2 const*, int, float2 const*, int, int)",
        # Batched complex products of what was transformed.
        "volta_gcgemm_64x32_nt",
        "ampere_gcgemm_64x64_tn",
        "void DSE::vector_fft<0, 1, 64, 8, 8, 1, float, float, float2>(float2*, float2*, int, int3, int3)",
    ],
    ("convolution forward", "fp32", EXPLICIT): [
        "void explicit_convolve_sgemm<float, int, 1024, 5, 5, 3, 3, 3, 0, false>(int, int, int, float const*)",
        "void im2col4d_kernel<float, int>(im2col4d_params, cudnnConvolutionStruct, cudnnTensor4dStruct, float const*)",
        "void at::native::vol2col_kernel<float>(long, float const*, int, int, int, int)",
        "void at::native::im2col_kernel<float>(long, float const*, long, long)",
    ],
    ("convolution forward", None, FFT): ["MIOpenConvFFT_transpose_in"],
    ("convolution forward", None, EXPLICIT): [
        "Im2Col",
        "Im3d2Col",
        "Im2d2Col_v2",
        "void ck_tile::kentry<256, 1, ck_tile::ImageToColumn<P>>(P)",
    ],
    ("convolution forward", "fp32", DIRECT): [
        "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, float, float, float>(P)",
        "void cudnn::cnn::conv2d_c1_k1_nchw_hw_packed_kernel<float, float, 3>(cudnnTensorStruct, float const*)",
        "void at::native::conv_depthwise3d_cuda_kernel<float, float, 3, 3, 3, 1, 1, 1>(P)",
        "void at::native::conv_depthwise2d_forward_kernel<3, float, int>(at::PackedTensorAccessor32<float const, 4ul>)",
        "naive_conv_fwd_ncdhw_float_double_float",
        "naive_conv_ab_nonpacked_fwd_nchw_float_double_float.kd",
        "void tensorflow::DepthwiseConv2dGPUKernelNCHW<float, 3, 3, 1, false>(P)",
    ],
    ("convolution forward", "bf16", DIRECT): [
        "naive_conv_ab_nonpacked_fwd_ncdhw_ushort_double_ushort",
        "void cudnn::cnn::conv2d_c1_k1_nhwc_kernel_specialized<__nv_bfloat16, float, float, 3, 3>(P)",
    ],
    ("convolution forward", "fp16", DIRECT): ["naive_conv_fwd_nchw_half_double_half"],
    ("convolution forward", "int8", DIRECT): ["naive_conv_ab_nonpacked_fwd_nchw_int8_t_int32_t_int8_t"],
    ("convolution forward", None, DIRECT): [
        "miopenGcnAsmConv1x1U",
        "miopenGcnAsmConv3x3U",
        "MIOpenConvUni",
        "cudnn::cnn::conv2d_grouped_direct_kernel",
        "conv2d_c1_k1_nhwc_kernel",
    ],
    ("convolution forward", "bf16", None): ["cudnn_generated_fort_native_sm80_convFwd_pointwise_bf16"],
    ("convolution forward", "fp32", None): [
        "void flip_filter<float, float>(float*, float const*, int, int, int, int)",
        "void convolve_common_engine_float_NHWC<float, float, 128, 5, 5, 3, 3, 3, 1, false, true>(int, int, int)",
    ],
    ("convolution input gradient", "fp32", IMPLICIT): [
        "sm80_xmma_dgrad_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3_ffma__5x_cudnn",
        "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*, int)",
        "void convolveNd_dgrad_float_engine<float, 3, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*, int)",
        "void cudnn::detail::dgrad_alg1_nd_float_engine<float, 3, 512, 6, 5, 3, 3, 3, false, true>(int, int, int)",
        "_Z29convolveNd_dgrad_float_engineIfLi3ELi512ELi6ELi5ELi3ELi3ELi3ELb0EEviiiPKT_iS2_iPS0_20kernel_gradNd_params",
    ],
    ("convolution input gradient", "tf32", IMPLICIT): [
        "sm90_xmma_dgrad_implicit_gemm_indexed_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x64x32_g1_strided__5x_cudnn",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_analytic_tf32_128x128_16x4_nhwc_align4>(P)",
    ],
    ("convolution input gradient", "fp16", IMPLICIT): [
        "sm90_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_cudnn",
        "void cutlass_cudnn::Kernel<cutlass_tensorop_f16_s16816dgrad_optimized_f16_256x128_32x3_nhwc_unity_stride>(P)",
        "igemm_bwd_gtcx3_nhwc_fp16_bx0_ex0_bt128x128x32_wt32x32x8_ws1x1_wr2x2_gkgs" + MIOPEN,
        "void ck::tensor_operation::device::(anonymous namespace)::kernel_grouped_conv_bwd_data_xdl_cshuffle_v3<"
        "_Float16>",
    ],
    ("convolution input gradient", None, IMPLICIT): [
        "void cask_plugin__5x_cudnn::xmma__5x_cudnn::init_device_workspace_kernel<xmma__5x_cudnn::implicit_gemm"
        "::dgrad::P>",
        "gridwise_convolution_backward_data_implicit_gemm_v4r1_xdlops_nchw_kcyx_nkhw",
    ],
    ("convolution input gradient", "fp32", DIRECT): [
        "void cudnn::cnn::dgrad2d_grouped_direct_kernel<false, int, float, float, float>(P)",
        "void dgrad_1x1_stride_2x2<float, float, 32>(float*)",
        "void at::native::conv_depthwise3d_cuda_backward_input_kernel<float, float, 3, 3, 3>(P)",
        "void at::native::conv_depthwise2d_backward_kernel<3, 1, float, int>(P)",
        "naive_conv_ab_nonpacked_bwd_ncdhw_float_double_float",
    ],
    ("convolution input gradient", "fp32", EXPLICIT): [
        "void at::native::col2vol_kernel<float, float>(long, float const*)",
        "void at::native::vol2im_kernel<float, float>(long, float const*, unsigned int, float*)",
        "void at::native::col2im_kernel<float, float>(long, float const*, long)",
    ],
    ("convolution input gradient", None, EXPLICIT): [
        "Col2Im3d",
        "Col2Im2dU",
        "void ck_tile::kentry<256, 1, ck_tile::ColumnToImage<P>>(P)",
    ],
    ("convolution weight gradient", "fp32", IMPLICIT): [
        "sm80_xmma_wgrad_implicit_gemm_indexed_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize32x32x8_g1_ffma__5x_cudnn",
        "void cudnn::cnn::convolveNd_wgrad_engine<float, 3, 128, 5, 5, 3, 3, 3, false>(int, int, int, float const*)",
        "void cudnn::cnn::wgrad_alg0_engine<float, 512, 6, 5, 3, 3, 3, false, 512>(int, int, int, float const*)",
        "void cudnn::detail::wgrad_alg1_nd_float_engine<float, float, 3, 0, 5, 6, 3, 3, 5, true, true>(int)",
        "void wgrad_alg1_engine_NHWC<float, float, 128, 5, 5, 3, 3, 3>(int, int, int)",
    ],
    ("convolution weight gradient", "tf32", IMPLICIT): [
        "sm80_xmma_wgrad_implicit_gemm_indexed_wo_smem_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize32x16x64__5x_cudnn",
        "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x32__5x_cudnn",
        "void cutlass_cudnn_train::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_128x128_16x4_nhwc_align4>(P)",
    ],
    ("convolution weight gradient", "bf16", IMPLICIT): [
        "sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64__5x_cudnn",
    ],
    ("convolution weight gradient", "fp16", IMPLICIT): [
        "volta_fp16_s884cudnn_fp16_256x64_sliced1x2_ldg8_wgrad_idx_exp_interior_nhwc2nchw_nt_v1",
        "sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage3_cudnn",
        "igemm_wrw_gtcx3_nhwc_fp16_bx0_ex1_bt256x256x32_wt32x32x8_ws2x2_wr2x2_gkgs" + MIOPEN,
        "void ck::tensor_operation::device::(anonymous namespace)::kernel_grouped_conv_bwd_weight_xdl_cshuffle_v3<"
        "_Float16>",
    ],
    ("convolution weight gradient", "fp32", WINOGRAD): [
        "void cudnn::winograd_nonfused::winogradWgradData4x4<float, float>(cudnn::winograd_nonfused"
        "::WinogradDataParams)",
        "void cudnn::winograd_nonfused::winogradWgradDelta9x9_5x5<float, float>(P)",
        "void cudnn::winograd_nonfused::winogradWgradOutput4x4<float, float>(P)",
    ],
    ("convolution weight gradient", "fp32", DIRECT): [
        "void cudnn::cnn::wgrad2d_grouped_direct_kernel<true, true, int, float, float, float>(P)",
        "void at::native::conv_depthwise3d_cuda_backward_weight_kernel<float, float, 1, 1>(P)",
        "void at::native::conv_depthwise2d_grad_weight_kernel<float, unsigned int>(P)",
        "naive_conv_ab_nonpacked_wrw_nchw_float_double_float.kd",
    ],
    ("convolution weight gradient", None, DIRECT): [
        "miopenGcnAsmConv3x3WrW",
        "cudnn::cnn::wgrad2d_c1_k1_nhwc_reduce_kernel",
    ],
    ("convolution weight gradient", "fp32", None): [
        "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*, float, int, int)",
    ],
    ("convolution weight gradient", None, None): [
        "MIOpenCvBwdWrW_LxL_P53",
        "xe_conv_bwd_weights",
        "void ck_tile::kentry<256, 1, ck_tile::GroupedConvolutionBackwardWeightKernel<P>>(P)",
    ],
    # Layout
    ("layout conversion", None, None): [
        "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(P)",
        "void cudnn::nchwToNhwcKernel<float, float, float, 0, 1, 2>(cudnn::nchw2nhwc_params_t<T3>, const T1 *, T2 *)",
        "void cudnn::engines_precompiled::nhwcToNchwKernel<float, float, float, true, false>(P)",
        "void cudnn::ops::nchwToFoldedNhwcKernel<float, float, float, true, (cudnnKernelDataType_t)0>(P)",
        "void cudnn::ops::foldedNhwcToNchwKernel<float>(P)",
        "void cudnn::ops::nhwcToFoldedNhwcKernel<__half, __half, float, true>(P)",
        "void tensorTransformGeneric<float, float, float, true, false, false, (cudnnKernelDataType_t)0>(P)",
        "void nhwcAddPaddingKernel<float, float, float, true, (cudnnKernelDataType_t)0>(int, int)",
        "void cudnn::ops::nchwAddPaddingKernel<float, float, float, false, (cudnnKernelDataType_t)2>(int, int)",
        "void transpose_readWrite_alignment_kernel<float2, float2, 1, false, 6, 4, 4>(P, float2 const*, float2*)",
        "batched_transpose_32x32_half",
        "batched_transpose_16x64_dword_ediv",
        "transpose_NCHW2CNHW_V1_2D_WG_half",
        "transpose_CNHW2NCHW_V2_3D_WG_float",
        "_ZN5cudnn19engines_precompiled16nchwToNhwcKernelIfffLb0ELb1EL21cudnnKernelDataType_t0EEEvPKT_PT0_",
        "nhwcToNchwKernel",
        "aten::mkldnn_reorder_conv3d_weight",
        "reorder_kernel",
        "generic_reorder",
        "xe_generic_reorder",
        "simple_reorder",
        "void marlin::gptq_marlin_repack_kernel<256, 4, false>(unsigned int const*, unsigned int*)",
        "void transformer_engine::swizzle_row_scaling_kernel<int4>(P)",
        "void transformer_engine::transpose_optimized_kernel<P>(P)",
        "wrapped_transpose",
        "input_transpose_fusion",
        "void genericReformat::copyVectorizedKernel<double, __half, float, true>(P)",
        "void genericReformat::copyPackedKernel<float, float, true>(P)",
        "void cuInt8::nchwToncxhwx<float>(P)",
        "void cuInt8::ncxhwxTonchw<float>(P)",
        "permutationKernelPLC3<float, 32>",
        "void tensorflow::functor::ShuffleInTensor3Simple<float, 2, 1, 0, false>(P)",
        "void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<unsigned int, 256, 32, 32>(P)",
        "void at::native::transpose_general_kernel<float>(P)",
    ],
    # Copies
    ("copy and cast", None, None): [
        "Memcpy DtoH (Device -> Pinned)",
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy PtoP (Device -> Device)",
        "Memcpy HtoD (Host -> Device)",
        "[CUDA memcpy Device-to-Host]",
        "[CUDA memcpy HtoD]",
        "CopyHostToDevice",
        "CopyDeviceToDevice",
        "hipMemcpyAsync",
        "__amd_rocclr_copyBuffer",
        "__amd_rocclr_copyBufferAligned.kd",
        STRIDED + "direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)",
        UNROLLED + "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul>>(int)",
        VECTORIZED
        + "bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul>>(int)",
        VECTORIZED + "float16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}>(int)",
        VECTORIZED + "float8_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}>(int)",
        UNROLLED + "copy_device_to_device(at::TensorIterator&, bool)::{lambda()#2}::operator()() const>(int)",
        "void at::unrolled_elementwise_kernel<at::direct_copy_kernel_cuda(at::TensorIteratorBase &)"
        "::[lambda() (instance 3)]>",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4, 64, 64>(float*)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::OpaqueType<4u>>(P)",
        "void at::<unnamed>::CatArrayBatchedCopy_vectorized<at::<unnamed>::OpaqueType<4>, unsigned int, 2, 128"
        ", 1>(char *)",
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl"
        "<P>>>",
        "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_internal_kernel"
        "<P>>",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(P)",
        "void (anonymous namespace)::indexSelectSmallIndex<float, long, unsigned int, 2, 2, -2>(P)",
        "void at::native::(anonymous namespace)::indexing_backward_kernel<float, 4>(long*, long*, float*)",
        "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float, long>(long*)",
        "void at::native::(anonymous namespace)::roll_cuda_kernel<float>(float const*, float*, long, long, long)",
        "void at::native::(anonymous namespace)::reflection_pad3d_out_kernel<float>(P)",
        "void at::native::(anonymous namespace)::replication_pad_forward_kernel3d<float>(P)",
        "void at::native::triu_tril_kernel<float, int, true, 1, false>(P)",
        "void at::native::compute_cuda_kernel<long>(long const*, long const*, long*, long, long)",
        "void cudnn::ops::convertTensor_kernel<float, float, float, (cudnnKernelDataType_t)2>(float, float const*)",
        "void cudnn::engines_precompiled::convertTensor_kernel<float>(float)",
        "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel(char**)",
        "SubTensorOpWithSubTensor4d",
        "SubTensorOpWithCastTensor1d",
        MANGLED
        + "ZZZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_EEviT0_T1_",
        "CatArrayBatchedCopy_vectorized",
        "index_elementwise_kernel",
        "aten::copy_",
        "aten::_to_copy",
        "aten::to",
        "aten::cat",
        "aten::contiguous",
        "aten::clone",
        "aten::index_select",
        "aten::_index_put_impl_",
        "aten::repeat_interleave",
        "fbgemm::permute_sparse_features",
        "zeCommandListAppendMemoryCopy(M2D)",
        "zeCommandListAppendMemoryCopy(D2M)",
        "zeCommandListAppendMemoryCopyRegion",
        "clEnqueueReadBuffer",
        "at::native::xpu::VectorizedElementwiseKernel<4, at::native::xpu::CopyScalarFunc<float>, "
        "at::detail::Array<char*, 2>>",
        "at::native::xpu::UnrolledElementwiseKernel<4, at::native::xpu::CastScalarFunc<double, float>>",
        "at::native::xpu::CatArrayBatchedCopyKernelFunctor<float>",
        "simple_concat",
        "xe_concat",
        "void moe::dev::permute::permuteKernel<P>(P)",
        "void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<__nv_bfloat16>(P)",
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(P)",
        "void vllm::reshape_and_cache_kernel<c10::Half>(P)",
        "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>(P)",
        "void vllm::copy_blocks_kernel<__half>(long*)",
        "void flashinfer::AppendPagedKVCacheKernel<128u>(P)",
        "void vllm::scaled_fp8_quant_kernel<c10::BFloat16>(P)",
        "_per_token_group_quant_fp8",
        "void per_token_group_quant_8bit_kernel<c10::BFloat16>(P)",
        "void aiter::dynamic_per_group_scaled_quant_kernel<__hip_bfloat16>(P)",
        "void cvt_fp16_to_fp4<__nv_bfloat16>(P)",
        "void transformer_engine::cast_transpose_optimized_kernel<P>(P)",
        "void transformer_engine::cast_mxfp8_2D_kernel<P>(P)",
        "void transformer_engine::detail::cast_transpose_general_kernel<P>(P)",
        "_permute_kernel",
        "_unpermute_kernel",
        "void moe_permute_topK_kernel<float, float, 128>(P)",
        "wrapped_convert_1",
        "wrapped_concatenate",
        "wrapped_slice",
        "wrapped_scatter",
        "loop_copy_fusion",
        "copy_fusion_2",
        "void cuSliceLayer::naiveSlice<float, 4>(P)",
        "void cuGatherLayer::gather<float>(P)",
        "void transform4d_0213<__half>(P)",
        "void swizzled_quant_kernel<8, 64>(P)",
        "void cached_quantization<8>(P)",
        "void kQuantizeBlockwise<__half, 4096, 4, 0, 0>(P)",
        "void kDequantizeBlockwise<__half, 512, 64, 8, 2>(P)",
        "void kInt8VectorQuant<__half, 1024, 0>(P)",
        "void kdequant_mm_int32_fp16<4, 512>(P)",
        "void kDoubleRowColQuant<64, 4, 16>(P)",
        "void cusparse::csr2coo_kernel<int>(P)",
        "void at::native::_fft_conjugate_copy_kernel<float>(P)",
        "aten::fft_fftshift",
        "void cub::CUB_200400_860_NS::detail::batch_memcpy::BatchMemcpyKernel<P>(P)",
        "void ck_tile::kentry<256, 1, ck_tile::Smoothquant<P>>(P)",
        "void at::native::chunk_cat_cuda_kernel<float, float>(P)",
        "Cast_GPU_DT_HALF_DT_FLOAT_kernel",
        "void vectorized_gather<cutlass::half_t>(P)",
    ],
    ("memory set", None, None): [
        "Memset (Device)",
        "Memset (Unknown)",
        "memset32",
        "[CUDA memset]",
        "__amd_rocclr_fillBufferAligned",
        "__amd_rocclr_fillBufferUnaligned.kd",
        VECTORIZED + "FillFunctor<float>, std::array<char*, 1ul>>(int, at::native::FillFunctor<float>)",
        "void at::vectorized_elementwise_kernel<4, at::FillFunctor<c10::BFloat16>, at::detail::Array<char *, 1>>(int"
        ", T2, T3)",
        "void cudnn::engines_precompiled::setTensor5d_kernel<float, float, 8, 8, 8>(cudnnTensorStruct, float*, float)",
        AGENT + "__parallel_for::ParallelForAgent<thrust::cuda_cub::__uninitialized_fill::functor<float, float>>>(P)",
        MANGLED + "NS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
        "aten::zeros_like",
        "aten::fill_",
        "aten::zero_",
        "aten::ones",
        "zeCommandListAppendMemoryFill",
        "at::native::xpu::VectorizedElementwiseKernel<8, at::native::xpu::FillFunctor<float>>",
        "wrapped_broadcast",
        "clEnqueueFillBuffer",
    ],
    # Normalisation
    ("normalisation", "fp32", None): [
        "void fused_residual_ln<float, 1, 256, 4, 4>(float*, float const*, float const*, float const*)",
        "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*, float*)",
        "void at::<unnamed>::RowwiseMomentsCUDAKernel<float>(long, T1, const T1 *, T1 *, T1 *)",
        "_ZN2at6native59_GLOBAL__N__133be68c_20_group_norm_kernel_cu_751192d7_2652324RowwiseMomentsCUDAKernelIfEEvlT"
        "_PKS3_",
        STRIDED
        + "(anonymous namespace)::GroupNormKernelImplInternal<float>(at::Tensor const&)::{lambda(float)#1}>(int)",
        STRIDED + "(anonymous namespace)::GroupNormBackwardKernelImplInternal<float>(at::Tensor const&)>(int)",
        "void at::native::(anonymous namespace)::ComputeFusedParamsCUDAKernel<float>(long, long, long, float const*)",
        "void at::native::(anonymous namespace)::ComputeInternalGradientsCUDAKernel<float>(long, float const*)",
        "void at::native::(anonymous namespace)::ComputeBackwardFusedParamsCUDAKernel<float>(long, long)",
        "void at::native::(anonymous namespace)::Compute1dBackwardFusedParamsCUDAKernel<float>(long, long)",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel1<float>(long, long, long)",
        "void at::native::(anonymous namespace)::GammaBeta1dBackwardCUDAKernel2<float>()",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)",
        "void at::native::(anonymous namespace)::LayerNormForwardCUDAKernel<float, float>(long, float const*)",
        "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel<float, float>(float const*)",
        "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float, float, int>(P)",
        "void at::native::batch_norm_collect_statistics_channels_last_kernel<at::native::Var, float, float, 4>(P)",
        "void at::native::batch_norm_transform_input_kernel<float, float, float, true, int>(P)",
        "void at::native::batch_norm_backward_reduce_kernel<float, float, float, int>(P)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct, float const*)",
        "void cudnn::bn_bw_1C11_singleread<float, 512, true, 1, 2, 0>(float, float, float, float, cudnnTensorStruct)",
        "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float, float, cudnnTensorStruct)",
        "void cuApplyLayerNorm<float, float, float>(float*, float*, float*, float const*, int, int, float)",
        "void at::native::(anonymous namespace)::weight_norm_fwd_first_dim_kernel<float, float>(float*, float*)",
        "void cuComputeGradInput<float, float, float>(float const*, float const*, int, int)",
        "void cuComputePartGradGammaBeta<float, float, float>(float const*, float const*, int)",
        "at::native::xpu::GNRowwiseMomentsFunctor<float, 32>",
    ],
    ("normalisation", "bf16", None): [
        "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::BFloat16>(long, float)",
        "_ZN2at6native49_GLOBAL__N__00000000_20_group_norm_kernel_cu"
        "_11111124RowwiseMomentsCUDAKernelIN3c108BFloat16EEEvlT_",
        "void transformer_engine::normalization::ln_fwd_tuned_kernel<Kernel_traits<__nv_bfloat16, __nv_bfloat16"
        ", float>>(P)",
    ],
    ("normalisation", "fp16", None): [
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float, false>(int, float)",
        "void cudnn::bn_fw_tr_1C11_singleread_fp16<512, 1, 1, 2, 0>(cudnnTensorStruct, __half const*, float)",
        "void cudnn::bn_bw_1C11_kernel_new<__half, float, float2, 512, true, 1>(float, float, float)",
    ],
    ("normalisation", None, None): [
        "RowwiseMomentsCUDAKernel",
        "MIOpenBatchNormFwdTrainSpatial",
        "MIOpenBatchNormBwdSpatial",
        "MIOpenLayernormFwd",
        "MIOpenGroupNormFwd",
        "_layer_norm_fwd_1pass_kernel",
        "_rms_norm_forward_kernel",
        "_group_norm_backward_kernel",
        "group_norm_nhwc_fwd_one_pass_kernel",
        "aten::native_group_norm",
        "aten::native_group_norm_backward",
        "aten::instance_norm",
        "gen9_bnorm_fwd",
        "nhwc_bnorm_fwd",
        "vectorized_lnorm_fwd",
        "void transformer_engine::rmsnorm_fwd_tuned_kernel<P>(P)",
        "gcnAsmBNBwdTrainSpatial",
        "MIOpenLRNWithinChannelFwd",
    ],
    # Attention
    ("attention", "fp32", None): [
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*)",
        "void (anonymous namespace)::softmax_warp_backward<float, float, float, 9, false, false>(float*)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, P>(float*, float const*)",
        "void at::<unnamed>::cunn_SoftMaxForwardReg<float, float, float, at::<unnamed>::SoftMaxForwardEpilogue, long"
        ", 4>(T3 *)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxBackwardSmem<4, float, float, float, P>(float*)",
        "void cudnn::softmax_fw_kernel<2, float, float, 256, 1, 0, 0>(cudnnTensorStruct, float const*)",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)",
        "_ZN43_GLOBAL__N__b6de9c8c_10_SoftMax_cu_9f978f6320softmax_warp_forwardIfffLi9ELb0ELb0EEEvPT0_PKT_iiiPKbib",
        "void vllm::moe::topkGatingSoftmax<8, 256, 4, 16>(float const*)",
    ],
    ("attention", "bf16", None): [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, cutlass::bfloat16_t>>(P)",
        "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, cutlass::bfloat16_t>>(P)",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(P)",
        "fmha_cutlassB_bf16_aligned_128x64_k64_sm80(P)",
        "void aiter::mla_dec_stage1_bf16_a16w16_subQ16_mqa16",
        "aiter::pa_bf16_noquant_gqa8_1tg_4w",
    ],
    ("attention", "fp16", None): [
        "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::half_t>>(P)",
        "fmha_cutlassF_f16_aligned_64x64_rf_sm80(P)",
        "void attention_kernel_batched_impl<AttentionKernel<cutlass::half_t, cutlass::arch::Sm80, true, 64, 64>>(P)",
    ],
    ("attention", None, None): [
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
        "cudnn_generated_fort_native_sdpa_sm80_flash_bprop_wmma_f16_knob_2_64x128x64_1x4x1_cga1x1x1_kernel0_0",
        "flash_fwd_kernel",
        "_attn_fwd",
        "attn_fwd",
        "bwd_kernel_dk_dv",
        "bwd_preprocess",
        "MIOpenSoftmaxForward",
        "aten::_softmax",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "softmax_warp_backward",
        "micro_sdpa",
        "void BatchPrefillWithPagedKVCacheKernel<P>(P)",
        "BatchPrefillWithPagedKVCacheKernel",
        "BatchDecodeWithPagedKVCacheKernel",
        "SinglePrefillWithKVCacheKernel",
        "BatchPrefillWithRaggedKVCacheKernel",
        "PersistentVariableLengthMergeStatesKernel",
        "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>(P)",
        "mla_decode",
        "_mla_attn_decode",
        "kn_mla_reduce_v1",
        "void flash_fwd_mla_kernel<P>(P)",
        "_fwd_kernel_stage1",
        "_fwd_grouped_kernel_stage1",
        "_fwd_kernel_stage2",
        "_fwd_kernel",
        "_bwd_kernel",
        "_fwd_kernel_splitK",
        "_splitK_reduce",
        "kernel_unified_attention_2d",
        "kernel_mha",
        "_gemm_mha_v2_0x9ab1",
        "cudnn::fusion::compute_dot_do_o_specialized<true, 128>",
        "void cudnn::fusion::convert_dq_to_16bits<true>(P)",
        "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
        "fused_recurrent_gated_delta_rule_fwd_kernel",
        "chunk_fwd_kernel_o",
        "chunk_gla_fwd_kernel_o",
        "chunk_scaled_dot_kkt_fwd_kernel",
        "void xqa::kernel_mha<P>(P)",
        "void masked_multihead_attention_kernel<unsigned short, 128>(P)",
        "triton_softmax_3",
        "mha_forward",
        "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<P>>(P)",
    ],
    ("attention", None, "flex_attention"): ["triton_tem_fused_flex_attention_0"],
    # Matrix products
    ("matrix product", "fp32", None): [
        "void ger_kernel<float, float, 256, 5, false>(cublasGerParams<float, float>)",
        "ampere_sgemm_128x64_tn",
        "ampere_sgemm_32x32_sliced1x4_tn",
        "volta_sgemm_128x64_nn",
        "turing_sgemm_128x64_nn",
        "volta_fp16_sgemm_fp16_128x64_nn",
        "volta_cgemm_32x32_tn",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_execute_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(cutlass_80_simt_sgemm_256x128_8x4_nt"
        "_align1::P)",
        "void cutlass::Kernel<cutlass_70_simt_sgemm_64x64_8x2_nn_align1>(P)",
        "_ZN7cutlass7Kernel2I43cutlass_80_simt_sgemm_256x128_8x4_nt_align1EEvNT_6ParamsE",
        "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x32x16_1x1x1_3_tnn_align1_bias_f32_relu",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, float, false"
        ", true>(P)",
        "std::enable_if<!T7, void>::type internal::kernel<int, int, float, float, float, cublasGemvParamsEx<int"
        ", P>>(T13)",
        ""
        "_ZN8internal5gemvx6kernelIiiffffLb0ELb1ELb1ELb0ELi7ELb0E18cublasGemvParamsExIi30cublasGemvTensorStridedBatchedE",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false, P>(P, float, float)",
        "void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024, false, cublasGemvParamsEx<int>>(P)",
        "void gemmSN_NN_kernel<float, 128, 2, 4, 8, 2, 4, false, cublasGemvTensorStridedBatched<float const>>(P)",
        "void gemmk1_kernel<int, float, 256, 5, true, false, false, false, P>(cublasGemmk1Params<float>)",
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>>>(P)",
        "void internal::region_transform_ABC_val<int, (int)32, (int)32, (bool)0, internal::TransformParamsABC"
        "<float>>(P)",
        "void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>>(float const*)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false, float, float, float>(P)",
        "void splitKreduce_kernel<float, float, float, float, true, false>(cublasSplitKParams<float>)",
        "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long, float*, cublasLtEpilogue"
        "_t)",
        "Cijk_Alik_Bljk_SB_Bias_AS_SAV_" + TENSILE,
        "Cijk_Ailk_Bjlk_SB_MT64x32x16_MI32x32x2x1_SE_1LDSB0_APM1",
        "void rocblas_gemvt_kernel<false, 256, float const*, float, float*>(int, int, float)",
        "void cusparse::csrmm_v2_kernel<P, float>(P)",
        "void cusparse::csrmv_v3_kernel<P, int, float>(P)",
        "void csrMm_n_kernel<float>(P)",
        "void geqrf_kernel<float>(P)",
        "void batched_svd_parallel_jacobi_32x16<float>(P)",
        "void cusolver_larft_kernel<float>(P)",
        "void getrs_kernel<float>(P)",
        "void RNN_blockPersist_fp_GRU<float>(P)",
    ],
    ("matrix product", "tf32", None): [
        "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off__5x_cublas",
        "sm80_xmma_gemm_tf32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_cublas",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(T1::Params)",
        "cutlass_80_tensorop_s1688tf32gemm_128x128_16x4_tn_align4",
        "cutlass3x_sm90_tensorop_s64x128x8tf32gemm_f32_f32_f32_f32_f32_128x128x32_2x1x1_0_tnn_align4",
        "ampere_s1688gemm_tf32_128x128_nn",
        "Cijk_Alik_Bljk_S_MX_B_" + TENSILE,
        "Custom_Cijk_Ailk_Bjlk_S_MX_B_BIAS_HA_S_SAV_NTD_SK3_UserArgs_MT256x256x32_MI16x16x1_shortname0_gfx950",
    ],
    ("matrix product", "bf16", None): [
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN",
        "nvjet_tss_256x128_64x4_1x2_h_bz_coopA_TNT",
        "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NTN",
        "nvjet_sm100_tst_64x8_64x16_2x4_h_bz_splitK_TNT",
        "nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn",
        "ampere_bf16_s1688gemm_bf16_128x128_ldg8_f2f_stages_32x1_nn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off__5x"
        "_cublas",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_nn_align8>(T1::Params)",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(P)",
        "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_1x1x1_0_tnn_align8_warpspecialized",
        "void gemvx::kernel<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, false, true, true, false, 7>(P)",
        "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_" + TENSILE,
        "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2, 16>(P)",
    ],
    ("matrix product", "fp16", None): [
        "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN",
        "nvjet_hss_64x8_64x16_2x1_v_bz_TNT",
        "nvjet_sm100_hsh_128x96_64x7_2x1_v_bz_TNN",
        "volta_h884gemm_128x256_ldg8_nn",
        "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
        "volta_s884gemm_fp16_64x64_sliced1x2_ldg8_tn",
        "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn",
        "turing_h1688gemm_256x64_sliced1x2_ldg8_tn",
        "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn",
        "ampere_h16816gemm_128x64_ldg8_stages_32x6_tn",
        "volta_hgemm_128x64_nn",
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64_stage3_warpsize2x2x1_tensor16x8x16_cublas",
        "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_32x6_tn_align8>(P)",
        "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8",
        "cutlass3x_sm90_tensorop_s64x256x16gemm_f16_f16_f32_void_f16_128x256x64_2x1x1_0_tnn_align8_warpspecialized",
        "cutlass3x_sm100_tensorop_h256x256x16gemm_256x256x64_0_nnn_align8_2sm",
        "Cijk_Ailk_Bljk_HHS_BH_Bias_AS_SAV_" + TENSILE,
        "Cijk_Ailk_Bjlk_HB_MT128x128x16_SE_K1",
        "Cijk_Alik_Bljk_HSS_BH_" + TENSILE,
        "void marlin::Marlin<__half, 256, 4, 16, 4, 4, 8>(int4 const*, int4 const*, int4*)",
        "void Marlin<256, 1, 8, 8, 4, 8>(int4 const*, int4 const*, int4*, half const*)",
        "void moe_res_matmul<__half>(P)",
        "void kgemm_4bit_inference_naive<__half, 128, 16>(P)",
        "void kspmm_coo_very_sparse_naive<__half, 8, 16>(P)",
        "sm80_xmma_sparse_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x128_cublas",
    ],
    ("matrix product", "fp8", None): [
        "nvjet_qqtst_128x128_128x6_1x2_h_bz_TNT",
        "nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_bias_TNT",
        "nvjet_sm100_qqtst_128x128_128x6_2x1_2cta_v_bz_Avec32UE8M0_Bvec32UE8M0_TNT",
        "nvjet_rqtst_128x128_128x6_1x2_h_bz_TNT",
        "sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x64x64_stage3_warpsize2x2x1_tensor16x8x32_cublas",
        "sm90_xmma_gemm_e5m2f32_e5m2f32_f32_tn_n_tilesize64x64x128_cublas",
        "cutlass3x_sm100_tensorop_s64x256x32gemm_f8_f8_f32_f16_f16_64x256x128_1x1x1_0_tnn_align4_1sm_bias_f16_relu",
        "cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e5m2_f32_bf16_bf16_128x128x128_1x2x1_0_tnn_align16",
        "Cijk_Alik_Bljk_F8BS_BH_" + TENSILE,
        "bmm_Bfloat16_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_cga1x1x1_16dp256b_rM_TN_transOut_schPd2x1x2"
        "_bN_dynBatch_sm100f",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u>(P)",
        "void aiter::fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256",
    ],
    ("matrix product", "fp4", None): [
        "nvjet_ootst_128x256_256x4_2x1_2cta_v_bz_Avec16UE4M3_Bvec16UE4M3_TNT",
        "cutlass3x_sm100_bstensorop_s256x128x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_bf16_bf16_256x128x256",
        "aiter::f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256",
    ],
    ("matrix product", "int8", None): [
        "sm80_xmma_gemm_i8i32_i8i32_i32_tn_n_tilesize128x128x64_stage3_warpsize2x2x1_tensor16x8x32_cublas",
        "ampere_int8_i16832gemm_int8_128x128_ldg16_stages_64x3_tn",
        "cutlass_80_tensorop_i16832gemm_s8_256x128_64x3_tn_align16",
        "cutlass_80_wmma_tensorop_i161616gemm_s8_64x64_128x2_tn_align16",
        "cutlass3x_sm90_tensorop_i64x128x32gemm_s8_s8_s32_s8_s8_128x128x128_2x1x1_0_tnn_align16",
        "Cijk_Alik_Bljk_I8BH_" + TENSILE,
    ],
    ("matrix product", "fp64", None): [
        "ampere_dgemm_64x64_nn",
        "volta_dgemm_128x64_tn",
        "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x128x16_stage3_tensor16x8x8_cublas",
        "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_128x64_16x3_nn_align1>(P)",
        "Cijk_Ailk_Bljk_DB_MT64x64x8_SE_K1",
    ],
    ("matrix product", None, None): [
        # Single precision for the tensors says nothing of the multiplication.
        "nvjet_sss_128x256_32x4_1x2_h_bz_TNT",
        "Kernel2",
        "wrapped_gemm_kernel",
        "gemmSN_TN_kernel",
        "splitKreduce_kernel",
        "triton_mm",
        "matmul_kernel",
        "_matmul_kernel_persistent",
        "aten::bmm",
        "aten::addmm",
        "aten::_int_mm",
        "aten::matmul",
        "aten::linear",
        "aten::einsum",
        "mkldnn::_linear_pointwise",
        "gemm_kernel",
        "gen_gemm_kernel",
        "bmm_kernel",
        "_bmm_chunk_fwd_kernel",
        "_grouped_mm_kernel",
        "wgmma_kernel",
        "fused_moe_kernel",
        "void moe_wna16_marlin_gemm<P>(P)",
        "void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>(P)",
        "gemm_fusion_dot_45",
        "gemm_fusion_dot_45_0",
        "triton_gemm_dot_12",
        "__myl_Fc_0x12ab",
        "void tensorrt_llm::kernels::weight_only::kernel<P>(P)",
        "void weightOnlyBatchedGemv<P>(P)",
        "void cusparse::load_balancing_kernel<P>(P)",
        "void rocsparse::csrmmnt_general_kernel<256>(P)",
        "spmm_kernel",
        "sddmm_kernel",
        "void ck_tile::kentry<256, 1, ck_tile::FusedMoeGemmKernel<P>>(P)",
        "void ck::kernel_contraction_multiple_d_xdl_cshuffle<P>(P)",
        "void rnn_blockPersist_fp_LSTM<P>(P)",
        "persistRNN_fp",
        "aten::linalg_solve",
        "aten::linalg_qr",
        "aten::_cudnn_rnn",
        "aten::lstm",
        "quantized::linear",
        "onednn::qlinear_pointwise",
        "void at::native::weight_int8pack_mm_kernel<P>(P)",
        "flatmm_kernel",
    ],
    ("matrix product", None, "addmm, relu"): ["triton_tem_fused_addmm_relu_5"],
    ("matrix product", None, "mm"): ["triton_tem_fused_mm_0"],
    ("matrix product", None, "_to_copy, bmm"): ["triton_tem_fused__to_copy_bmm_3"],
    ("matrix product", None, "_scaled_mm"): ["triton_tem_fused__scaled_mm_1"],
    # Elementwise
    ("elementwise", "fp32", None): [
        "void axpy_kernel_val<float, float>(cublasAxpyParamsVal<float, float, float>)",
        "void scal_kernel_val<float, float>(cublasScalParamsVal<float, float>)",
        "void at::native::glu_backward_kernel<float>(int, float*, float const*, float const*, long, long)",
        VECTORIZED + "(anonymous namespace)::silu_kernel" + LAMBDA + "(float)#1}, std::array<char*, 2ul>>(int)",
        NCU
        + "silu_kernel(at::TensorIteratorBase &)::[lambda() (instance 1)]::operator ()() const::[lambda(float)]>(int)",
        VECTORIZED + "(anonymous namespace)::silu_backward_kernel" + LAMBDA + "(float, float)#1}>(int)",
        VECTORIZED + "CUDAFunctor_add<float>, std::array<char*, 3ul>>(int, at::native::CUDAFunctor_add<float>)",
        VECTORIZED + "BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>>(int)",
        VECTORIZED
        + "BUnaryFunctor<float, float, float, at::native::MulFunctor<float>>, at::detail::Array<char*, 2>>(int)",
        STRIDED + "CUDAFunctor_add<float>>(at::TensorIteratorBase&, at::native::CUDAFunctor_add<float> const&)>(int)",
        VECTORIZED + "mse_kernel_cuda" + LAMBDA + "(float, float)#1}>(int)",
        VECTORIZED + "sigmoid_kernel_cuda" + LAMBDA + "(float)#1}>(int)",
        VECTORIZED + "(anonymous namespace)::where_kernel_impl" + LAMBDA + "(bool, float, float)#1}>(int)",
        VECTORIZED + "exp_kernel_cuda" + LAMBDA + "(float)#1}>(int)",
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, P>(long"
        ", double)",
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(P)",
        "void kernelPointwiseApply2<TensorCopyOp<float, float>, float, float, unsigned int, 1, 1>(P)",
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)",
        "void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float, long>(float*)",
        "void at::native::(anonymous namespace)::nll_loss2d_forward_kernel<float, float, int>(float*)",
        "void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>(float*, float*, float*, long*, float*)",
        "void cudnn::ops::scalePackedTensor_kernel<float, float>(long, float*, float)",
        "void op_generic_tensor_kernel<2, float, float, float, 256, (cudnnGenericOp_t)7, (cudnnNanPropagation_t)0>(P)",
        "void add_tensor_kernel_v3<2, float, float, 128, 1, 1, 4, 2>(cudnnTensorStruct, float*)",
        "void cudnn::ops::activation_fw_4d_kernel<float, float, 128, 1, 4, cudnn::detail::relu_func<float>>(P)",
        AGENT + "__parallel_for::ParallelForAgent<thrust::cuda_cub::__transform::unary_transform_f<float*>>>(P)",
        "void LSTM_elementWise_fp<float, float, float, (cudnnRNNBiasMode_t)2>(int, int, int, float const*)",
        MANGLED
        + "ZZZNS0_62_GLOBAL__N__7d4ed096_23_ActivationSiluKernel_cu_751192d7_1559511silu_kernelERNS_18TensorIterator"
        "BaseEENKUlvE_clEvENKUlvE0_clEvEUlfE_St5arrayIPcLm2EEEEviT0_T1_",
        MANGLED + "NS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
        # Words in the template arguments that mean something else in a name.
        VECTORIZED + "copysign_kernel_cuda" + LAMBDA + "(float, float)#1}>(int)",
        VECTORIZED + "gemm_bias_functor<float>, std::array<char*, 2ul>>(int, at::native::gemm_bias_functor<float>)",
        VECTORIZED + "AUnaryFunctor<float, float, float, conv_scale<float>>, pool_sum<float>>(int)",
        VECTORIZED + "ReduceAddGradient<float>, std::array<char*, 2ul>>(int)",
        "at::native::xpu::VectorizedElementwiseKernel<4, at::native::xpu::AddFunctor<float>>",
        "at::native::xpu::ElementwiseGlobalRangeKernel<at::native::xpu::SiluFunctor<float>>",
        "void vllm::apply_repetition_penalties_kernel<float>(P)",
        "void transformer_engine::fused_rope_forward_kernel<float>(P)",
        "void transformer_engine::gated_act_kernel<4, float>(P)",
        "void transformer_engine::vectorized_pointwise::unary_kernel<8, float>(P)",
        "void cuScale::scale<float, float>(P)",
        "void launchPwgenKernel<float>(P)",
        "void bias_act_kernel<float, 3>(P)",
        "void at::native::masked_scale_kernel<float>(P)",
        "AddV2_GPU_DT_FLOAT_DT_FLOAT_kernel",
        "void tensorflow::BiasNHWCKernel<float>(P)",
    ],
    ("elementwise", "fp16", None): [
        VECTORIZED + "CUDAFunctor_add<c10::Half>>(int)",
        STRIDED + "BinaryFunctor<c10::Half, c10::Half, c10::Half, at::native::MulFunctor<float>>>(int)",
        MANGLED + "NS0_15CUDAFunctor_addIN3c104HalfEEESt5arrayIPcLm3EEEEviT0_T1_",
        "void cuEltwise::eltwise<cuEltwise::SimpleAlgo<__half, __half>, cuEltwise::Sum>(P)",
        "void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__half>(P)",
        "void bias_add_transform_0213<__half>(P)",
        "void fused_bias_residual<__half>(P)",
        "void gptj_residual_add<__half>(P)",
    ],
    ("elementwise", "bf16", None): [
        VECTORIZED + "(anonymous namespace)::silu_kernel" + LAMBDA + "(c10::BFloat16)#1}, std::array<char*, 2ul>>(int)",
        MANGLED + "NS0_15CUDAFunctor_addIN3c108BFloat16EEESt5arrayIPcLm3EEEEviT0_T1_",
        "void tensorrt_llm::kernels::cutlass_kernels::doActivationKernel<__nv_bfloat16, float>(P)",
        "void vllm::act_and_mul_kernel<c10::BFloat16>(P)",
        "void vllm::silu_and_mul_quant_kernel<c10::BFloat16>(P)",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(P)",
    ],
    ("elementwise", "fp64", None): [
        VECTORIZED + "CUDAFunctor_add<double>, std::array<char*, 3ul>>(int)",
        MANGLED + "NS0_15CUDAFunctor_addIdEESt5arrayIPcLm3EEEEviT0_T1_",
    ],
    ("elementwise", None, None): [
        VECTORIZED + "(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)>(int)",
        VECTORIZED + "(anonymous namespace)::masked_fill_kernel(at::TensorIterator&, c10::Scalar const&)>(int)",
        VECTORIZED + "CUDAFunctor_add<long>, std::array<char*, 3ul>>(int)",
        "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out(c10"
        "::Scalar const&)>(P)",
        "vectorized_elementwise_kernel",
        "elementwise_kernel_with_index",
        "OpTensorFwdBias",
        "Op2dTensorGeneric",
        "Op1dTensorGeneric",
        "SubTensorOpWithScalar1d",
        "MIOpenActiveFwdLite",
        "MIOpenNeuronFwd",
        "_swiglu_forward_kernel",
        "_geglu_tanh_backward_kernel",
        "_triton_rope",
        "void rotary_embedding_kernel<int, true>(P)",
        "liger_cross_entropy_kernel",
        "aten::silu_",
        "aten::add",
        "aten::normal_",
        "aten::l1_loss",
        "aten::linspace",
        "aten::__and__",
        "aten::mse_loss_backward",
        "gen9_eltwise_fwd",
        "gen9_binary",
        "ref_binary",
        "void moe::dev::activation::activationKernel<P>(P)",
        "wrapped_add_2",
        "wrapped_multiply",
        "wrapped_tanh",
        "generatedNativePointwise",
        "_jsd_kernel",
        "_kldiv_kernel_forward",
        "_tv_distance_kernel",
        "_grpo_loss_fwd_kernel",
        "element_mul_kernel",
        "_dyt_fwd_kernel",
        "_rope_embedding",
        "_fg_kernel",
        "aten::fft_fftfreq",
        "void cub::CUB_200800_900_NS::detail::transform::transform_kernel<P>(P)",
        "void cub::CUB_200700_900_NS::detail::for_each::static_kernel<P>(P)",
        "ParallelForAgent",
        "LSTMFwdHidUpdate",
        "add_kernel",
        "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<P>, int>(P)",
    ],
    # Interpolation
    ("interpolation", "fp32", None): [
        "void at::native::(anonymous namespace)::upsample_trilinear3d_out_frame<float, float>(int, float, float, bool)",
        "void at::native::(anonymous namespace)::upsample_trilinear3d_backward_out_frame<float, float>(int, float)",
        "void at::native::(anonymous namespace)::upsample_nearest3d_out_frame<float, &at::native::nearest_idx>(P)",
        "void at::native::(anonymous namespace)::upsample_nearest3d_backward_out_frame<float, float>(int)",
        "void at::native::(anonymous namespace)::upsample_bilinear2d_nhwc_out_frame<float, float>(float, float)",
        "void at::native::(anonymous namespace)::grid_sampler_3d_kernel<float, int>(int)",
        "void at::native::(anonymous namespace)::grid_sampler_2d_backward_kernel<float, int>(int)",
        "_ZN2at6native55_GLOBAL__N__cde4609a_22_UpSampleTrilinear3d_cu_efb54c9330upsample_trilinear3d_out"
        "_frameIffEEviT0_S3_b",
        "void cuResizeLayer::resizeKernel<float>(P)",
        "void roi_align_forward_kernel_impl<float>(P)",
        "upfirdn2d_kernel_small<float, 1, 1>",
    ],
    ("interpolation", None, None): [
        "upsample_trilinear3d_out_frame",
        "aten::upsample_trilinear3d",
        "aten::upsample_linear1d_backward",
        "aten::grid_sampler_3d",
        "ref_resampling_fwd",
    ],
    # Reduction
    ("reduction", "fp32", None): [
        "void nrm2_kernel<float, float, float, 1, 0, 128, 0>(cublasNrm2Params<float, float>)",
        "void asum_kernel<int, float, float, float, float, 0>(cublasAsumParams<float, float, float>)",
        "void iamax_kernel<float, float, 256, false>(cublasIamaxParams<float>)",
        "void at::native::(anonymous namespace)::atomicadaptiveaveragegradinput<float>(float*, float const*)",
        "void at::native::(anonymous namespace)::adaptiveaveragegradinput<float>(float*, float const*)",
        REDUCE + "float, at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>>, 4>>(P)",
        REDUCE + "float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4>>(P)",
        REDUCE + "float, at::native::NormTwoOps<float, float, float>, unsigned int, float, 4>>(P)",
        # A variance, no norm layer.
        REDUCE
        + "float, at::native::WelfordOps<float, float, int, thrust::pair<float, float>>, unsigned int, float, 4>>(P)",
        "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIffffEEjfLi4ELi4EEEEEvT1_",
        "void at_cuda_detail::cub::DeviceReduceKernel<at_cuda_detail::cub::DeviceReducePolicy<float>>(float*)",
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy, false, float, at::cuda::cub::OpaqueType"
        "<8>>(P)",
        "void at_cuda_detail::cub::DeviceScanKernel<Policy, float const*, float*>(P)",
        AGENT + "__reduce::ReduceAgent<float*, float*, float, int, thrust::plus<float>>>(P)",
        "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float>>(float*, float const*)",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(P)",
        "void at::native::bitonicSortKVInPlace<2, -1, 16, 16, float, long, P, unsigned int>(P)",
        "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int, float const*)",
        "void at::native::(anonymous namespace)::max_pool3d_with_indices_single_out_frame<float>(float const*)",
        "void at::native::(anonymous namespace)::avg_pool3d_cuda_update_output<float, float>(P)",
        "void at::native::<unnamed>::atomic_adaptive_average_gradinput<float>(T1 *, const T1 *, int, int)",
        "void at::native::(anonymous namespace)::gatherMedian<float, unsigned int, 1>(P)",
        "void at::native::(anonymous namespace)::adaptive_average_pool<float>(float const*, float*, int, int)",
        "void cudnn::pooling_fw_4d_kernel<float, float, cudnn::maxpooling_func<float>, 1, false>(P)",
        "void calc_bias_diff<2, float, float, 128, 0>(cudnnTensorStruct, float const*)",
        "at::native::xpu::ReduceKernel<1, at::native::xpu::ReduceOp<float, at::native::xpu::WelfordOps<float>>>",
        "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16, 1, true, float, "
        "float>>(SSMParamsBase)",
        "void regular_fft<128u, EPT<8u>, 4u, 32u, (padding_t)1, (twiddle_t)0, (loadstore_modifier_t)2, "
        "(layout_t)0, unsigned int, float>(P)",
        "void vector_fft<64u, EPT<8u>, 16u, float>(P)",
        "void vector_fft_r2c<256u, EPT<16u>, 1u, float>(P)",
        "void regular_fft_c2r<512u, float>(P)",
        "void composite_2way_fft<50u, 5u, float>(P)",
        "void multi_bluestein_fft<float>(P)",
        "void spRadix0064B::kernel1Mem<unsigned int, float, (fftDirection_t)-1, 16u>(kernel_parameters_t<P>)",
        "void spVector1024C::kernelMem<unsigned int, float, (fftDirection_t)1>(P)",
        "void spRealComplexC2R::postprocessC2C_kernelMem<unsigned int, float>(P)",
        "void nms_kernel_impl<float>(P)",
        "void tensorflow::BiasGradNHWC_SharedAtomics<float>(P)",
    ],
    ("reduction", "bf16", None): [
        REDUCE + "c10::BFloat16, at::native::func_wrapper_t<c10::BFloat16, at::native::sum_functor<float>>, 4>>(P)",
        "void moe::dev::finalize::finalizeKernel<moe::dev::finalize::KernelParams<cutlass::bfloat16_t>>(P)",
        "void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<__nv_bfloat16>(P)",
        "void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
        "void transformer_engine::amax_kernel<8, true, __nv_bfloat16>(P)",
    ],
    ("reduction", None, None): [
        "reduce_kernel",
        "mloPoolingG",
        "gridwise_generic_reduce_1_prepare",
        "void rocprim::detail::reduce_kernel<P>(P)",
        "aten::mean",
        "aten::linalg_vector_norm",
        "aten::norm",
        "aten::max_pool3d",
        "aten::topk",
        "aten::std",
        "aten::bucketize",
        "gen9_pooling_fwd",
        "void moe::dev::finalize::finalizeDeepSeekKernel<P>(P)",
        "void moe::dev::routing::routingDeepSeek::routingMainKernel<P>(P)",
        "void vllm::moe::moe_align_block_size_kernel<int>(int*, int*)",
        "void vllm::moe::count_and_sort_expert_tokens_kernel<int>(int*)",
        "void flashinfer::sampling::TopPSamplingFromProbKernel<1024u>(P)",
        "_chunk_scan_fwd_kernel",
        "_chunk_scan_bwd_dc_kernel",
        "_chunk_state_fwd_kernel",
        "_state_passing_fwd_kernel",
        "_selective_scan_update_kernel",
        "_chunk_cumsum_fwd_kernel",
        "_sort_chunks_by_idxs_kernel",
        "wrapped_reduce",
        "dpRadix0128C::kernel3Mem",
        "postprocessC2C_kernel",
        "preprocessC2C_kernel",
        "fft_rtc_fwd_len256_factors_4_4_4_4_wgs_64_tpt_64_sp_ip_CI_unitstride_sbrr",
        "fft_rtc_back_len64_sp_op_CI_sbcc",
        "r2c_1d_post_kernel",
        "real_post_process_kernel_interleaved",
        "VkFFT_main_R2C",
        "aten::_fft_r2c",
        "aten::_fft_c2c",
        "aten::_fft_c2r",
        "aten::fft_rfftn",
        "aten::fft_ifft2",
        "aten::stft",
        "void cub::CUB_200200_900_NS::DeviceScanKernel<P>(P)",
        "void cub::_V_300200_SM_1000::detail::reduce::DeviceReduceSingleTileKernel<P>(P)",
        "DeviceMergeSortBlockSortKernel",
        "DeviceSegmentedSortFallbackKernel",
        "DeviceUniqueByKeySweepKernel",
        "DevicePartitionSweepKernel",
        "DeviceRunLengthEncodeKernel",
        "MIOpenConvBwdB",
        "void ck_tile::kentry<256, 1, ck_tile::MoeSortingKernel<P>>(P)",
        "aten::linalg_norm",
        "aten::quantile",
    ],
    # Optimiser
    ("optimiser", "fp32", None): [
        "void lamb_cuda_kernel_part1<float, float, 512>(float*, float*, float*, float*, float*, unsigned long)",
        FOREACH + "TensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>>(P)",
        FOREACH + "FusedOptimizerTensorListMetadata<5>, FusedAdamMathFunctor<float, float, 5, (ADAM_MODE)1, true>>(P)",
        FOREACH + "TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>(P)",
        FOREACH + "TensorListMetadata<1>, LpNormFunctor<float, (NormType)1, float, 1, 1, 0>>(P)",
        FOREACH + "TensorListMetadata<2>, TernaryOpScalarFunctor<float, 2, 2, 0>, LerpFunctor<float>, float>(P)",
        FOREACH + "TensorListMetadata<2>, Copy<float, float, 2, 1, 1>>(P)",
        "void at::native::lpnorm_cleanup<float, (at::native::NormType)1, float, float>(float const*)",
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, float, int>, float, float>(long)",
        "void multi_tensor_apply_kernel<TensorListMetadata<3>, ScaleFunctor<float, float>, float>(long, int volatile*)",
        "_ZN2at6native52_GLOBAL__N__4671fab5_19_ForeachTernaryOp_cu_5285c63625multi_tensor_apply_kernelINS1"
        "_18TensorListMeta"
        "dataILi2EEENS1_22TernaryOpScalarFunctorIfLi2ELi2ELi0EEEJNS0_11LerpFunctorIfEEfEEEvT_T0_DpT1_",
        "void kOptimizerStatic8bit2StateBlockwise<float, 0, 256, 1>(float*)",
        "void kPreconditionOptimizerStatic8bit2State<float, 0>(P)",
    ],
    ("optimiser", None, None): [
        "multi_tensor_apply_kernel",
        "at::native::amp_update_scale_cuda_kernel",
        "aten::_foreach_addcdiv_",
        "aten::_fused_adamw_",
        "aten::_amp_foreach_non_finite_check_and_unscale_",
        "Optimizer.step#AdamW.step",
        "at::native::xpu::MultiTensorApplyKernelFunctor<at::native::xpu::TLMetaForAddress<2>>",
    ],
    # Communication
    ("communication", None, None): [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Broadcast_RING_LL",
        "rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(RankData*)",
        "void c10d::(anonymous namespace)::multimem_one_shot_all_reduce_kernel<float>(P)",
        "nccl:all_reduce",
        "c10d::allreduce_",
        "record_param_comms",
        "All2All_Pooled_Req",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)",
        "void deep_ep::internode_ll::combine<10, 7168, 9>(void*, void*, int*)",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*, int*)",
        "void mscclpp::collective::allreducePacket<float>(float*)",
        "mscclpp_kernel",
        "void tensorrt_llm::kernels::moe_comm::moeAllToAllKernel(P)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __nv_bfloat16>(P)",
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<__half>>(P)",
        "void c10d::symmetric_memory::barrier_kernel(unsigned int**)",
        "void oneccl::reduce_sycl<float>(P)",
        "mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>",
        "_all2all_dispatch_kernel",
        "void allreduce_fusion_kernel_1stage<__hip_bfloat16>(P)",
        "rocshmem_barrier_kernel",
    ],
    # Compilers
    ("fused", None, "native_group_norm, silu"): [
        "triton_per_fused_native_group_norm_silu_2",
        "graph_0_cpp_fused_native_group_norm_silu_0",
        "cpp_fused_native_group_norm_silu_11",
    ],
    ("fused", None, "convolution"): [
        "triton_poi_fused_convolution_7",
        "triton_poi_fused_convolution_8.kd",
        "triton_poi_fused_convolution_9 [clone .kd]",
    ],
    ("fused", None, "convolution, native_group_norm, silu"): ["triton_poi_fused_convolution_native_group_norm_silu_12"],
    ("fused", None, "_to_copy, _unsafe_view, add, mul"): ["triton_red_fused__to_copy__unsafe_view_add_mul_3"],
    ("fused", None, "add, cos, sin"): ["triton_poi_fused_add_cos_sin_0", "triton_poi_fused_add_cos_sin_0_0d1d2de"],
    ("fused", None, "native_group_norm_backward"): ["triton_red_fused_native_group_norm_backward_2"],
    ("fused", None, "_softmax, _softmax_backward_data, mul"): [
        "triton_per_fused__softmax__softmax_backward_data_mul_5"
    ],
    ("fused", None, "_unsafe_index, add, cat, upsample_trilinear3d"): [
        "triton_poi_fused__unsafe_index_add_cat_upsample_trilinear3d_9"
    ],
    ("fused", None, "_native_batch_norm_legit_functional, relu, threshold_backward"): [
        "triton_poi_fused__native_batch_norm_legit_functional_relu_threshold_backward_4"
    ],
    ("fused", None, "convolution_backward, sum"): ["triton_red_fused_convolution_backward_sum_1"],
    ("fused", None, "_foreach_add, _foreach_mul"): ["triton_for_fused__foreach_add__foreach_mul_0"],
    ("fused", None, None): [
        "triton__0d1d2d3de",
        "## Call CompiledFxGraph fabc123 ##",
        "nvfuser_pointwise_f0_c1_r0_g0",
        "triton_my_kernel",
        "loop_add_fusion_3",
        "fusion_12",
        "loop_multiply_fusion",
        "input_add_reduce_fusion_4",
        "input_reduce_fusion",
        "loop_convert_fusion_1__1",
        "loop_dynamic_update_slice_fusion",
        "loop_broadcast_fusion",
        "input_concatenate_fusion",
        "fusion.12",
        "__myl_AddMeanSubMulMeaAddSqrDivMul_0x9c21",
        "__myl_bb0_3_AddMul",
    ],
    ("fused", "fp32", None): ["void CudaCodeGen::kernel1<Tensor<float, 5, 5>>(P)"],
    ("convolution forward", None, "convolution"): ["triton_tem_fused_convolution_1"],
    ("convolution forward", None, "convolution, silu"): ["triton_tem_fused_convolution_silu_3"],
    ("convolution input gradient", None, None): [
        "xe_conv_bwd_data",
        "void ck_tile::kentry<256, 1, ck_tile::GroupedConvolutionBackwardDataKernel<P>>(P)",
    ],
    ("convolution forward", "fp16", None): [
        "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, true, c10::Half, "
        "c10::Half>>(ConvParamsBase)",
    ],
    ("reduction", "fp16", None): [
        "void kgetColRowStats<__half, 64, 4, 16>(P)",
    ],
    ("convolution weight gradient", None, IMPLICIT): [
        "igemm_v4r1_dynamic_wrw",
    ],
    # CPU operators
    ("convolution forward", None, None): [
        "aten::mkldnn_convolution",
        "aten::slow_conv3d_forward",
        "aten::conv_transpose3d",
        "mkldnn::_convolution_pointwise",
        "cudnn_generated_fort_native_sm80_convFwd_pointwise_pointwise_pointwise",
        "gen_conv_kernel",
        "xe_conv_fwd",
        "gen9_conv_fwd",
        "ref_convolution_fwd",
        "void ck_tile::kentry<256, 1, ck_tile::GroupedConvolutionForwardKernel<P>>(P)",
    ],
    ("convolution backward", None, None): [
        "aten::convolution_backward",
        "void causal_conv1d_bwd_kernel<Causal_conv1d_bwd_kernel_traits<128, 4, true>>(ConvParamsBwd)",
        "void causal_conv1d_channellast_bwd_kernel<P>(ConvParamsBwd)",
    ],
    ("bookkeeping", None, None): [
        "aten::view",
        "aten::empty_strided",
        "aten::item",
        "aten::lift_fresh",
        "ConvolutionBackward0",
        "CudnnConvolutionBackward",
        "_Conv3dFunctionBackward",
        "autograd::engine::evaluate_function: NativeGroupNormBackward0",
        "torch::autograd::AccumulateGrad",
        "TorchDynamo Cache Lookup",
        "Torch-Compiled Region: 0/0",
        "detach",
        "zeCommandListAppendBarrier",
    ],
    (OTHER, None, None): [
        "my_unknown_kernel",
        "aten::unheard_of",
        "",
        "_Z",
        "_ZN",
        "_Z99999999999999999short",
        "kernel",
        "\x1b[31m\n",
        "[*+?(",
        "my_fusion_kernel",
        "decode_jpeg_kernel",
        "linear_prepack_kernel",
        "wrapped",
        "void my_kernel<cutlass::bfloat16_t>(P)",
        "fwd_kernel_of_mine",
    ],
}
CASES = [(name, *kind) for kind, names in NAMES.items() for name in names]


@pytest.mark.parametrize(("name", "category", "precision", "detail"), CASES)
def test_a_kernel_is_known_by_its_name(name: str, category: str, precision: str | None, detail: str | None) -> None:
    assert classify(name) == Kind(category, precision, detail)


def test_the_list_is_long_and_names_no_kernel_twice() -> None:
    names = [name for name, *_ in CASES]
    assert len(names) > 800
    assert len(set(names)) == len(names)


def test_every_category_has_a_name_in_the_list_and_other_is_last() -> None:
    assert categories()[-1] == OTHER
    assert {category for category, _, _ in NAMES} == set(categories())


def test_every_category_but_other_has_a_rule() -> None:
    assert {category for _, category in taxonomy().rules} == set(categories()) - {OTHER}


@pytest.mark.parametrize("key", ["rules", "precisions", "algorithms"])
def test_every_rule_decides_for_a_name_in_the_list(key: str) -> None:
    seekers = getattr(taxonomy(), key)
    decided = {
        next((i for i, (found, _) in enumerate(seekers) if found(module.plain(name))), None) for name, *_ in CASES
    }
    assert decided >= set(range(len(seekers)))


def test_a_pattern_has_no_capital_that_a_name_in_lower_case_cannot_match() -> None:
    content = yaml.safe_load(Path(module.__file__).with_name("taxonomy.yaml").read_text(encoding="utf-8"))
    patterns = [entry["pattern"] for key in ("rules", "precisions", "algorithms") for entry in content[key]]
    assert not [pattern for pattern in patterns if re.search(r"(?<!\\)[A-Z]", pattern)]
    assert content["operators"] == [name.lower() for name in content["operators"]]


@pytest.mark.parametrize(
    ("mangled", "demangled"),
    [
        (
            "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastIZNS0_59_GLOBAL__N__133be68c_20"
            "_group_"
            "norm_kernel_cu_751192d7_2652327GroupNormKernelImplInternalIdEEvRKNS_6TensorES7_S7_llllT_RS5_S9_S9"
            "_EUlddE0_EEvRN"
            "S_18TensorIteratorBaseERKS8_EUliE_EEviT1_",
            STRIDED
            + "(anonymous namespace)::GroupNormKernelImplInternal<double>(at::Tensor const&)::{lambda(double)#1}>(int)",
        ),
        (
            "_ZN2at6native43_GLOBAL__N__d884c1f8_10_SoftMax_cu_e4m3f8_f24cunn_SoftMaxBackwardSmemILi4EfffEEvPT0_",
            "void at::native::(anonymous namespace)::cunn_SoftMaxBackwardSmem<4, float, float, float>(float*)",
        ),
        (
            "_ZN2ck16tensor_operation6device12_GLOBAL__N_140kernel_grouped_conv_fwd_xdl_cshuffle_v3IDF16_DF16_fEEvv",
            "void ck::tensor_operation::device::(anonymous namespace)::kernel_grouped_conv_fwd_xdl_cshuffle_v3<"
            "_Float16>()",
        ),
        (
            "_ZTSN2at6native3xpu27VectorizedElementwiseKernelILi4ENS1_14CopyScalarFuncIfEEEE",
            "at::native::xpu::VectorizedElementwiseKernel<4, at::native::xpu::CopyScalarFunc<float>>",
        ),
        (
            "_ZN3moe3dev8finalize14finalizeKernelIN7cutlass10bfloat16_tEEEvT_",
            "void moe::dev::finalize::finalizeKernel<cutlass::bfloat16_t>(P)",
        ),
        (
            "_Z10vector_fftILj64E3EPTILj8EELj16EfEv19kernel_arguments_t",
            "void vector_fft<64u, EPT<8u>, 16u, float>(kernel_arguments_t)",
        ),
        (
            "_Z14gemvNSP_kernelI6__halfS0_S0_fLi1ELi16EEvT8_",
            "void gemvNSP_kernel<__half, __half, __half, float, 1, 16>(P)",
        ),
    ],
)
def test_a_mangled_name_tells_what_the_demangled_one_tells(mangled: str, demangled: str) -> None:
    assert classify(mangled) == classify(demangled) != Kind(OTHER, None, None)


@pytest.mark.parametrize("kind", [kind for kind in NAMES if kind[0] not in ("bookkeeping", OTHER)])
def test_names_cut_short_or_of_any_case_raise_nothing(kind: tuple[str, str | None, str | None]) -> None:
    for name in NAMES[kind]:
        for length in range(0, len(name), 7):
            assert classify(name[:length]).category in categories()


def test_a_name_of_a_megabyte_is_classified_by_its_beginning() -> None:
    assert classify(VECTORIZED + "CUDAFunctor_add<float>" + ", std::tuple<float>" * 60_000) == (
        "elementwise",
        "fp32",
        None,
    )
    start = time.process_time()
    for name in (
        "a_" * 100_000,
        "conv" * 50_000,
        "_Z" + "1a" * 100_000,
        "xmma_" * 50_000,
        "triton_" * 50_000,
        "(" * 10**6,
    ):
        classify(name)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "name",
    [
        "elementwise_kernel" * 100,
        "elementwise_kernel" * 30 + "index_" * 200,
        "elementwise" * 100 + "_kernel" * 100,
        "index_elementwise_kernel" * 80,
        "vectorized_elementwise_kernel<" + "index_copy_" * 150,
        "triton_poi_" + "fused_" * 160 + "_1" * 500 + "!",
        "graph_0_" + "cpp_fused_" * 100 + "_1" * 450 + "!",
        "loop_" * 390 + "fusion",
        "wrapped_" * 240 + "!",
    ],
)
def test_a_name_that_repeats_what_rules_seek_takes_no_time(name: str) -> None:
    start = time.process_time()
    for i in range(3):
        classify(f"{name}{i}"[-module.LONGEST :])
    # 0.05 s by itself; 0.4 to 3 s where each place is tried with each that follows.
    assert time.process_time() - start < 0.3


def test_many_names_are_classified_in_seconds() -> None:
    names = [f"{name}_{i}" for i in range(25) for name, *_ in CASES]
    start = time.process_time()
    for name in names:
        classify(name)
    # 0.4 s by itself; slow enough a bound for a busy machine, quick enough to see a search that goes wrong.
    assert time.process_time() - start < 5


def test_the_kernels_table_has_a_column_for_the_detail(tmp_path: Path) -> None:
    columns = tables.columns("kernels")
    assert columns[columns.index("precision") + 1] == "detail"
    cell = {"model": "m", "gpu": "g", "variant": "v", "phase": "sample", "profiler": "torch", "status": "ok"}
    rows = [cell | {"kernel": name} | classify(name)._asdict() for name, *_ in CASES if name.isprintable()]
    tables.write("kernels", rows, tmp_path / "kernels.csv")
    details = [row["detail"] for row in tables.read("kernels", tmp_path / "kernels.csv")]
    assert details == [detail for name, _, _, detail in CASES if name.isprintable()]


def real_profile(name: str) -> Path:
    if not PROFILES.is_dir():
        pytest.skip("../shared is not here")
    return PROFILES / name


def h200_runs() -> dict[str, dict[str, dict[str, float]]]:
    return json.loads(real_profile("h200_kernels.json").read_text(encoding="utf-8"))


def category_ms(run: dict[str, dict[str, float]]) -> dict[str, float]:
    times: dict[str, float] = defaultdict(float)
    for name, figures in run.items():
        times[classify(name).category] += figures["total_us"] / 1000
    return times


def test_measured_h200_runs_have_no_unknown_time() -> None:
    for run, kernels in h200_runs().items():
        times = category_ms(kernels)
        assert times[OTHER] < 0.01 * sum(times.values()), run


def test_measured_h200_runs_are_split_as_published() -> None:
    # ms of convolution, GroupNorm, layout conversion and copies, as they were published for the same runs.
    published = {"fwd_fp32": (144.2, 38.3, 0), "fwd_tf32": (23.4, 38.3, 6.9), "fwd_tf32_cl": (23.6, 38.3, 49.3)}
    runs = h200_runs()
    for run, (convolution, norm, layout) in published.items():
        times = category_ms(runs[run])
        assert times["convolution forward"] == pytest.approx(convolution, abs=0.6)
        assert times["normalisation"] == pytest.approx(norm, abs=0.2)
        # 1.2 ms of concatenation are in "copy and cast" in every run.
        assert times["layout conversion"] + times["copy and cast"] == pytest.approx(layout, abs=1.3)


def test_measured_h200_runs_show_their_precision() -> None:
    runs = h200_runs()
    convolutions = {
        run: {kind.precision for kind in map(classify, kernels) if kind.category == "convolution forward"} - {None}
        for run, kernels in runs.items()
    }
    assert convolutions["fwd_fp32"] == {"fp32"}
    assert "tf32" in convolutions["fwd_tf32"]


def test_measured_h200_convolutions_show_their_algorithm() -> None:
    for kernels in h200_runs().values():
        kinds = {name: classify(name) for name in kernels}
        unknown = [name for name, kind in kinds.items() if kind.category.startswith("conv") and kind.detail is None]
        # The sum over the parts of a weight gradient.
        assert all("reduce_wgrad" in name for name in unknown)


@pytest.mark.parametrize("name", ["h200_forward_fp32_raw.csv.gz", "h200_forward_tf32_raw.csv.gz"])
def test_names_as_nsight_compute_writes_them_are_known(name: str) -> None:
    with gzip.open(real_profile("ncu") / name, "rt", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(line for line in stream if line.startswith('"')))
    kernels = [row for row in rows if row["Kernel Name"]]
    assert len(kernels) > 300
    times: dict[str, float] = defaultdict(float)
    for row in kernels:
        times[classify(row["Kernel Name"]).category] += float(row["gpu__time_duration.sum"].replace(",", ""))
    assert times[OTHER] < 0.01 * sum(times.values())


def test_names_as_nsight_systems_writes_them_are_known_mangled_and_demangled(tmp_path: Path) -> None:
    database = tmp_path / "profile.sqlite"
    database.write_bytes(gzip.decompress((real_profile("nsys") / "mfu_2gpu_before.sqlite.gz").read_bytes()))
    connection = sqlite3.connect(database)
    pairs = connection.execute(
        "SELECT DISTINCT demangled.value, mangled.value FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel "
        "JOIN StringIds AS demangled ON demangled.id = kernel.demangledName "
        "JOIN StringIds AS mangled ON mangled.id = kernel.mangledName"
    ).fetchall()
    connection.close()
    assert len(pairs) > 20
    for demangled, mangled in pairs:
        assert classify(mangled) == classify(demangled)
        assert classify(demangled).category != OTHER
