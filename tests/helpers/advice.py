"""Small facts with round numbers for tests of advice."""

from aquila.advice.facts import CodedDownlink, Facts, MethodResult, Study


def result(method, gap, up, **changed):
    values = {
        "options": {}, "alpha": 0.1, "alpha_factor": 1.0, "seeds": 3, "quality": 0.9 + gap,
        "down": 4.0, **changed,
    }  # fmt: skip
    return MethodResult(method=method, gap=gap, up=up, **values)


def study(model="cnn", split="iid", parameters=10_000, runs=(), **changed):
    values = {
        "source": f"results/{model}_{split}", "task": "cifar10", "devices": 10, "rounds": 100,
        "settings": {"work": "epochs"}, "dense": "fedavg", "dense_quality": 0.9, "level": None,
        **changed,
    }  # fmt: skip
    runs = (result("fedavg", 0.0, 4.0), *runs)
    return Study(model=model, split=split, parameters=parameters, runs=runs, **values)


def facts(*studies, coded=()):
    return Facts(studies, tuple(coded), {})


CODED = (
    CodedDownlink("results/a", "laq", 0.5, 1, 0.05, -0.001),
    CodedDownlink("results/b", "laq", 0.5, 1, 0.04, 0.002),
    CodedDownlink("results/a", "laq", 0.7, 1, 0.02, -0.02),
    CodedDownlink("results/b", "laq", 0.7, 1, 0.02, 0.002),
)
