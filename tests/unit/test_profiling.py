"""Kernel taxonomy, reading of traces, making of traces."""

import csv
import gzip
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from meddpm import tables
from meddpm.config import UserError
from meddpm.profiling import kineto
from meddpm.profiling.taxonomy import OTHER, categories, classify, taxonomy

PROFILES = Path(__file__).parents[2].parent / "shared" / "profiles"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::"
STRIDED = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::"

NAMES = [
    # cuDNN convolutions: direction and precision
    ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_ffma_cudnn", "convolution forward", "fp32"),
    ("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_cudnn", "convolution forward", "tf32"),
    ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_cudnn", "convolution forward", "bf16"),
    ("sm90_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_cudnn", "convolution input gradient", "fp16"),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_cudnn", "convolution weight gradient", "tf32"),
    ("void cudnn::cnn::wgrad2d_grouped_direct_kernel<true, int, float>(int)", "convolution weight gradient", "fp32"),
    ("void convolveNd_dgrad_float_engine<float, 3, 512>(int, float const*)", "convolution input gradient", "fp32"),
    ("void implicit_convolveNd_sgemm<float, 3, 128, 5>(int)", "convolution forward", "fp32"),
    ("volta_scudnn_128x64_relu_xregs_large_nn_v1", "convolution forward", "fp32"),
    ("volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "convolution forward", "fp16"),
    ("cudnn_generated_fort_native_sm80_convFwd_pointwise_bf16", "convolution forward", "bf16"),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_analytic>(P)", "convolution input gradient", "tf32"),
    ("void cask_plugin__5x_cudnn::init_device_workspace_kernel<P>(P, bool)", "convolution forward", None),
    ("void at::native::conv_depthwise3d_cuda_backward_weight_kernel<float>()", "convolution weight gradient", "fp32"),
    # layout
    ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, true>(P)", "layout conversion", None),
    ("void cudnn::engines_precompiled::nhwcToNchwKernel<float, float>(P)", "layout conversion", None),
    ("void cudnn::ops::nchwToFoldedNhwcKernel<float>(P)", "layout conversion", None),
    ("void tensorTransformGeneric<float, float, float, true>(P)", "layout conversion", None),
    # copies and fills
    ("Memcpy DtoH (Device -> Pinned)", "copy and cast", None),
    ("Memset (Device)", "memory set", None),
    (f"{STRIDED}direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)", "copy and cast", None),
    (f"{ELEMENTWISE}bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>(int)", "copy and cast", None),
    (f"{ELEMENTWISE}FillFunctor<float>>(int)", "memory set", None),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 4>(float*)", "copy and cast", None),
    # normalisation, also inside an elementwise kernel
    ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long)", "normalisation", "fp32"),
    ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::BFloat16>(long)", "normalisation", "bf16"),
    (f"{STRIDED}GroupNormKernelImplInternal<float>(at::Tensor const&)>(int)", "normalisation", "fp32"),
    ("void at::native::(anonymous namespace)::GammaBeta1dBackwardCUDAKernel2<float>()", "normalisation", "fp32"),
    # attention
    ("void pytorch_flash::flash_fwd_kernel<Traits<64, cutlass::bfloat16_t>>(P)", "attention", "bf16"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7", "attention", None),
    ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(P)", "attention", "bf16"),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 9>(float*)", "attention", "fp32"),
    # matrix products
    ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN", "matrix product", "bf16"),
    ("nvjet_sm100_hsh_128x96_64x7_2x1_v_bz_TNN", "matrix product", "fp16"),
    ("nvjet_qqtst_128x128_128x6_1x2_h_bz_TNT", "matrix product", "fp8"),
    ("ampere_sgemm_128x64_tn", "matrix product", "fp32"),
    ("ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn", "matrix product", "fp16"),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn", "matrix product", "bf16"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(P)", "matrix product", "tf32"),
    ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn", "matrix product", "fp16"),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(P)", "matrix product", "fp32"),
    ("void gemv2T_kernel_val<int, int, float, float, float, float, 128>(P)", "matrix product", "fp32"),
    ("ampere_dgemm_64x64_nn", "matrix product", "fp64"),
    # elementwise, interpolation, reduction, optimiser, communication
    (f"{ELEMENTWISE}CUDAFunctor_add<c10::Half>>(int)", "elementwise", "fp16"),
    (f"{ELEMENTWISE}(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)>(int)", "elementwise", None),
    ("void at::native::upsample_trilinear3d_out_frame<float, float>(int)", "interpolation", "fp32"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(P)", "reduction", "fp32"),
    ("void at_cuda_detail::cub::DeviceReduceKernel<P>(float*)", "reduction", "fp32"),
    ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(P)", "optimiser", "fp32"),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", None),
    # compilers
    ("triton_per_fused_native_group_norm_silu_2", "fused", None),
    ("triton_poi_fused_convolution_7", "fused", None),
    ("graph_0_cpp_fused_native_group_norm_silu_0", "fused", None),
    ("## Call CompiledFxGraph fabc123 ##", "fused", None),
    # CPU operators
    ("aten::mkldnn_convolution", "convolution forward", None),
    ("aten::slow_conv3d_forward", "convolution forward", None),
    ("mkldnn::_convolution_pointwise", "convolution forward", None),
    ("aten::convolution_backward", "convolution backward", None),
    ("aten::native_group_norm", "normalisation", None),
    ("aten::native_group_norm_backward", "normalisation", None),
    ("aten::upsample_trilinear3d", "interpolation", None),
    ("aten::upsample_linear1d_backward", "interpolation", None),
    ("aten::bmm", "matrix product", None),
    ("aten::addmm", "matrix product", None),
    ("aten::linear", "matrix product", None),
    ("aten::_softmax", "attention", None),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention", None),
    ("aten::silu_", "elementwise", None),
    ("aten::add", "elementwise", None),
    ("aten::normal_", "elementwise", None),
    ("aten::l1_loss", "elementwise", None),
    ("aten::linalg_vector_norm", "reduction", None),
    ("aten::mean", "reduction", None),
    ("aten::copy_", "copy and cast", None),
    ("aten::_to_copy", "copy and cast", None),
    ("aten::cat", "copy and cast", None),
    ("aten::zeros_like", "memory set", None),
    ("aten::_foreach_addcdiv_", "optimiser", None),
    ("aten::_fused_adamw_", "optimiser", None),
    ("aten::view", "bookkeeping", None),
    ("aten::empty_strided", "bookkeeping", None),
    ("ConvolutionBackward0", "bookkeeping", None),
    ("autograd::engine::evaluate_function: NativeGroupNormBackward0", "bookkeeping", None),
    ("TorchDynamo Cache Lookup", "bookkeeping", None),
    ("detach", "bookkeeping", None),
    ("nccl:all_reduce", "communication", None),
    # names that resemble others
    ("aten::linspace", "elementwise", None),
    ("aten::norm", "reduction", None),
    ("void cudnn::engines_precompiled::convertTensor_kernel<float>(float)", "copy and cast", None),
    ("my_unknown_kernel", OTHER, None),
    ("aten::unheard_of", OTHER, None),
]


@pytest.mark.parametrize(("name", "category", "precision"), NAMES)
def test_a_kernel_is_known_by_its_name(name: str, category: str, precision: str | None) -> None:
    assert classify(name) == (category, precision)


def test_every_category_has_a_name_in_the_list_and_other_is_last() -> None:
    assert categories()[-1] == OTHER
    assert {category for _, category, _ in NAMES} == set(categories())


def test_every_category_but_other_has_a_rule() -> None:
    assert {category for _, category in taxonomy().rules} == set(categories()) - {OTHER}


def real_profile(name: str) -> Path:
    if not PROFILES.is_dir():
        pytest.skip("../shared is not here")
    return PROFILES / name


def h200_runs() -> dict[str, dict[str, dict[str, float]]]:
    return json.loads(real_profile("h200_kernels.json").read_text(encoding="utf-8"))


def category_ms(run: dict[str, dict[str, float]]) -> dict[str, float]:
    times: dict[str, float] = defaultdict(float)
    for name, figures in run.items():
        times[classify(name)[0]] += figures["total_us"] / 1000
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
        run: {classify(name)[1] for name in kernels if classify(name)[0] == "convolution forward"} - {None}
        for run, kernels in runs.items()
    }
    assert convolutions["fwd_fp32"] == {"fp32"}
    assert "tf32" in convolutions["fwd_tf32"]


@pytest.mark.parametrize("name", ["h200_forward_fp32_raw.csv.gz", "h200_forward_tf32_raw.csv.gz"])
def test_names_as_nsight_compute_writes_them_are_known(name: str) -> None:
    with gzip.open(real_profile("ncu") / name, "rt", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(line for line in stream if line.startswith('"')))
    kernels = [row for row in rows if row["Kernel Name"]]
    assert len(kernels) > 300
    times: dict[str, float] = defaultdict(float)
    for row in kernels:
        times[classify(row["Kernel Name"])[0]] += float(row["gpu__time_duration.sum"].replace(",", ""))
    assert times[OTHER] < 0.01 * sum(times.values())


def range_(name: str, start: float, duration: float, category: str = "cpu_op", **fields: object) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "pid": 1, "tid": 1, **fields}


def write_trace(path: Path, events: list[dict[str, object]]) -> Path:
    text = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def times_ms(rows: list[tables.Row]) -> dict[str, float]:
    return {row["kernel"]: row["time_ms"] for row in rows}


def test_self_time_of_nested_operators(tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path / "trace.json",
        [
            # Not in order: the reader sorts.
            range_("aten::mkldnn_convolution", 20, 60),
            range_("aten::conv3d", 0, 100),
            range_("aten::convolution", 10, 80),
            range_("aten::silu", 100, 50),
            # The same moment on another thread is no child.
            range_("aten::copy_", 20, 7, tid=2),
            {"ph": "M", "name": "process_name", "pid": 1},
            {"ph": "i", "name": "Iteration Start", "ts": 1},
        ],
    )
    rows = kineto.kernel_rows(trace)
    assert times_ms(rows) == pytest.approx(
        {
            "aten::mkldnn_convolution": 0.060,
            "aten::silu": 0.050,
            "aten::conv3d": 0.020,
            "aten::convolution": 0.020,
            "aten::copy_": 0.007,
        }
    )
    assert [row["time_ms"] for row in rows] == sorted((row["time_ms"] for row in rows), reverse=True)
    assert rows[0] == {
        "kernel": "aten::mkldnn_convolution",
        "category": "convolution forward",
        "precision": None,
        "launch": None,
        "calls": 1,
        "time_ms": pytest.approx(0.060),
        "share": pytest.approx(60 / 157),
    }


def test_operators_that_begin_with_their_parent_and_calls_are_counted(tmp_path: Path) -> None:
    events = [range_("inner", 0, 4), range_("outer", 0, 10), range_("outer", 10, 5)]
    rows = {row["kernel"]: row for row in kineto.kernel_rows(write_trace(tmp_path / "trace.json", events))}
    assert rows["outer"]["time_ms"] == pytest.approx(0.011)
    assert rows["outer"]["calls"] == 2
    assert rows["inner"]["calls"] == 1


def test_a_child_that_ends_after_its_parent_by_rounding() -> None:
    assert dict(kineto.self_times([range_("parent", 0, 10), range_("child", 6, 5)])) == {"parent": 6, "child": 5}


def test_cpu_operators_by_their_old_name(tmp_path: Path) -> None:
    events = [range_("aten::conv3d", 0, 10, "Operator"), range_("aten::mkldnn_convolution", 2, 7, "Operator")]
    rows = kineto.kernel_rows(write_trace(tmp_path / "trace.json", events))
    assert times_ms(rows) == {"aten::mkldnn_convolution": 0.007, "aten::conv3d": 0.003}


def test_ranges_of_the_profiler_and_of_the_user_are_left_out(tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path / "trace.json",
        [
            range_("ProfilerStep#3", 0, 100, "Operator"),
            range_("ProfilerStep#3", 0, 100, "user_annotation"),
            range_("my range", 0, 100, "user_annotation"),
            range_("PyTorch Profiler (0)", 0, 100, "Trace"),
            range_("aten::add", 10, 30),
        ],
    )
    rows = kineto.kernel_rows(trace)
    assert times_ms(rows) == {"aten::add": 0.030}
    assert rows[0]["share"] == 1


@pytest.mark.parametrize(
    ("kernel", "copy", "fill"), [("kernel", "gpu_memcpy", "gpu_memset"), ("Kernel", "Memcpy", "Memset")]
)
def test_gpu_events_by_new_and_old_names(tmp_path: Path, kernel: str, copy: str, fill: str) -> None:
    small = {"grid": [1, 1, 1], "block": [128, 1, 1], "stream": 7}
    large = {"grid": [32, 4, 1], "block": [256, 1, 1], "stream": 7}
    trace = write_trace(
        tmp_path / "trace.json.gz",
        [
            range_("sm90_xmma_fprop_tf32f32", 0, 50, kernel, args=large),
            range_("sm90_xmma_fprop_tf32f32", 50, 30, kernel, args=large),
            range_("sm90_xmma_fprop_tf32f32", 80, 10, kernel, args=small),
            range_("Memcpy HtoD (Pageable -> Device)", 90, 8, copy, args={"bytes": 4}),
            range_("Memset (Device)", 98, 2, fill),
            # The host's side of the same work: no kernel time.
            range_("aten::conv3d", 0, 1000),
            range_("cudaLaunchKernel", 0, 500, "cuda_runtime"),
            range_("ProfilerStep#1", 0, 100, "gpu_user_annotation"),
        ],
    )
    rows = kineto.kernel_rows(trace)
    summary = [(row["kernel"][:6], row["launch"], row["calls"], row["time_ms"], row["share"]) for row in rows]
    assert summary == [
        ("sm90_x", "(32,4,1)x(256,1,1)", 2, 0.080, 0.80),
        ("sm90_x", "(1,1,1)x(128,1,1)", 1, 0.010, 0.10),
        ("Memcpy", None, 1, 0.008, 0.08),
        ("Memset", None, 1, 0.002, 0.02),
    ]
    assert [(row["category"], row["precision"]) for row in rows] == [
        ("convolution forward", "tf32"),
        ("convolution forward", "tf32"),
        ("copy and cast", None),
        ("memory set", None),
    ]


def test_rows_fit_the_kernels_table(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "trace.json", [range_("aten::add", 0, 3), range_("aten::zero", 5, 0)])
    cell = {"model": "m", "gpu": "g", "variant": "fp32", "phase": "sample", "profiler": "torch", "status": "ok"}
    tables.write("kernels", [cell | row for row in kineto.kernel_rows(trace)], tmp_path / "kernels.csv")
    assert [row["time_ms"] for row in tables.read("kernels", tmp_path / "kernels.csv")] == [0.003, 0.0]


def test_share_is_empty_where_no_time_passed(tmp_path: Path) -> None:
    assert kineto.kernel_rows(write_trace(tmp_path / "trace.json", [range_("aten::add", 0, 0)]))[0]["share"] is None


def test_a_trace_that_is_a_bare_list(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps([range_("aten::add", 0, 3)]))
    assert times_ms(kineto.kernel_rows(tmp_path / "trace.json")) == {"aten::add": 0.003}


WHOLE = json.dumps({"traceEvents": [range_("aten::add", 0, 3)] * 50}).encode()


@pytest.mark.parametrize(
    ("content", "word"),
    [
        pytest.param(WHOLE[: len(WHOLE) // 2], "truncated", id="truncated"),
        pytest.param(gzip.compress(WHOLE)[:-20], "truncated", id="truncated gzip"),
        pytest.param(gzip.compress(WHOLE[: len(WHOLE) // 2]), "truncated", id="gzip of truncated"),
        pytest.param(gzip.compress(WHOLE)[:-8] + bytes(8), "cannot be read", id="gzip of another checksum"),
        # The deflate block type 3 does not exist.
        pytest.param(gzip.compress(WHOLE)[:10] + b"\x07" * 40, "cannot be read", id="damaged gzip"),
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b" \n", "empty", id="blank"),
        pytest.param(gzip.compress(b""), "empty", id="gzip of nothing"),
        pytest.param(b"==PROF== Connected", "no JSON", id="text"),
        pytest.param(b"\x89PNG\r\n\x1a\n\xff\xfe", "no JSON", id="binary"),
        pytest.param(b'{"traceEvents": [1,, 2]}', "no valid JSON", id="broken"),
        pytest.param(b'{"a": "\xff\xfe"}', "no valid JSON", id="not UTF-8"),
        pytest.param(b"{}", "no traceEvents", id="no events key"),
        pytest.param(b"[]", "no traceEvents", id="empty list"),
        pytest.param(b'{"traceEvents": 5}', "no traceEvents", id="events no list"),
        pytest.param(b'{"traceEvents": [null, 5, {"ph": "M"}]}', "no events of kernels", id="other events"),
        pytest.param(b'{"traceEvents": [{"ph": "X", "name": "a", "cat": "cpu_op"}]}', "no events", id="no duration"),
        pytest.param(
            json.dumps([range_("ProfilerStep#1", 0, 5)]).encode(), "no events of kernels", id="profiler's own"
        ),
    ],
)
def test_a_file_that_is_no_trace_is_told_in_one_line(tmp_path: Path, content: bytes, word: str) -> None:
    trace = tmp_path / "trace.json.gz"
    trace.write_bytes(content)
    with pytest.raises(UserError, match=word) as caught:
        kineto.kernel_rows(trace)
    assert str(trace) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_trace_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        kineto.kernel_rows(tmp_path / "none.json.gz")


def covered_ms(events: list[dict[str, object]]) -> float:
    """Time in which at least one range is open, summed over threads."""
    threads: dict[object, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    total = 0.0
    for intervals in threads.values():
        reached = float("-inf")
        for start, end in sorted(intervals):
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
    return total / 1000


@pytest.mark.parametrize(
    ("name", "on_gpu"),
    [
        ("amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz", True),
        ("critical_path__alexnet__benchmark_result_2869224_1695835535_trace.json.gz", True),
        ("triton_example__triton_example.json.gz", True),
        ("cupti_profiler__benchmark_result_924719_1679055439_trace.json.gz", False),
        ("rank_unavailable__rank_not_found.json.gz", False),
    ],
)
def test_real_traces(name: str, on_gpu: bool) -> None:
    path = real_profile("kineto") / name
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    rows = kineto.kernel_rows(path)
    total = sum(row["time_ms"] for row in rows)
    if on_gpu:
        wanted = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        assert total == pytest.approx(sum(event["dur"] for event in wanted) / 1000)
    else:
        wanted = [event for event in events if event.get("cat") == "cpu_op"]
        # Self times add up to the time in which any operator ran.
        assert total == pytest.approx(covered_ms(wanted), rel=1e-6)
    assert sum(row["calls"] for row in rows) == len(wanted)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert sum(row["share"] for row in rows if row["category"] == OTHER) < 0.01


def test_real_trace_has_launches() -> None:
    rows = kineto.kernel_rows(real_profile("kineto") / "triton_example__triton_example.json.gz")
    assert [(row["category"], row["launch"], row["calls"]) for row in rows] == [("fused", "(1,1,1)x(128,1,1)", 1)]


@pytest.mark.parametrize(("warmup", "active"), [(0, 1), (2, 3)])
def test_a_trace_holds_the_active_calls_alone(tmp_path: Path, warmup: int, active: int) -> None:
    torch = pytest.importorskip("torch")
    from meddpm.profiling.torch_profiler import profile

    calls = []
    values = torch.ones(64)

    def step() -> None:
        calls.append(None)
        torch.cos(values) if len(calls) <= warmup else torch.sin(values)

    trace = tmp_path / "deep" / "trace.json.gz"
    profile(step, warmup, active, trace, cuda=False)

    assert len(calls) == warmup + active
    document = json.loads(gzip.decompress(trace.read_bytes()))
    names = [event["name"] for event in document["traceEvents"] if event.get("ph") == "X"]
    assert len([name for name in names if re.fullmatch(r"ProfilerStep#\d+", name)]) == active
    assert not any("Input Dims" in event.get("args", {}) for event in document["traceEvents"])
    rows = {row["kernel"]: row for row in kineto.kernel_rows(trace)}
    assert rows["aten::sin"]["calls"] == active
    assert "aten::cos" not in rows
    assert list(trace.parent.iterdir()) == [trace]


def test_a_step_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from meddpm.profiling.torch_profiler import profile

    def step() -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        profile(step, 0, 1, tmp_path / "trace.json.gz", cuda=False)
    assert list(tmp_path.iterdir()) == []


def test_a_profile_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from meddpm.profiling.torch_profiler import profile

    with pytest.raises(ValueError, match="active must be 1 or more"):
        profile(lambda: None, 1, 0, tmp_path / "trace.json.gz", cuda=False)
    with pytest.raises(ValueError, match=r"\.json\.gz"):
        profile(lambda: None, 1, 1, tmp_path / "trace.json", cuda=False)
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="no CUDA device"):
            profile(lambda: None, 1, 1, tmp_path / "trace.json.gz", cuda=True)
