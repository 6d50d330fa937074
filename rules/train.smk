"""Train the weights of the models that config.yaml says `weights: train` of.

Input: the cases. Output: results/train/<model>/<gpu>/<variant>/ with weights, loss curve and the facts of the run;
earlier weights are kept under kept/, and checkpoints/ is where a run that was stopped goes on.
"""


rule train:
    input:
        cases=training_cases,
    output:
        weights="results/train/{model}/{gpu}/{variant}/weights.safetensors",
        curve="results/train/{model}/{gpu}/{variant}/loss.csv",
        record="results/train/{model}/{gpu}/{variant}/training.json",
    log:
        "results/logs/train/{model}/{gpu}/{variant}.log",
    conda:
        "../envs/run.yaml"
    threads: device_threads
    resources:
        **on_device("train"),
    params:
        settings=settings("train"),
    script:
        "../workflow_scripts/train.py"
