"""The diffusion process of Med-DDPM: schedule, training loss, solvers and noise. Importing this package is cheap."""
