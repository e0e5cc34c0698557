"""Gradients of a step that are copied equal those that are added to zero."""

import torch
from torch import nn

from aquila.core.random import Key
from aquila.tasks import build_model
from aquila.training.flat_module import FlatModule
from aquila.training.local_training import LocalTraining
from aquila.training.step_gradients import StepGradients


class Branching(nn.Module):
    """A convolution, a layer that is used twice, and one that only large inputs use."""

    def __init__(self) -> None:
        super().__init__()
        self.images, self.twice = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 8)
        self.rare, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.twice(self.twice(self.images(x).mean((2, 3))).tanh())
        return self.last(self.rare(hidden) if len(x) > 4 else hidden)


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    sizes = (6, 4, 6)
    return [
        (
            torch.randn(size, 3, 8, 8, generator=generator),
            torch.randint(0, 3, (size,), generator=generator),
        )
        for size in sizes
    ]


def copying(module: nn.Module, training: LocalTraining) -> FlatModule:
    """Return a module that copies the gradients of a step, which only GPUs do by themselves."""
    model = FlatModule(module, nn.functional.cross_entropy, training=training)
    trained = [p for p in model.module.parameters() if p.requires_grad]
    model._step_gradients = StepGradients(model.grad, trained, copies=True)
    return model


def test_copied_gradients_give_the_same_steps() -> None:
    for training in (LocalTraining(), LocalTraining(momentum=0.9, clip=0.5, prox=0.1)):
        for make in (Branching, lambda: build_model("resnet18", width=0.0625)):
            torch.manual_seed(0)
            module = make()
            adding = FlatModule(module, nn.functional.cross_entropy, training=training)
            results = [
                model.train(adding.theta.clone(), batches(), 0.1, Key((1,)))
                for model in (copying(module, training), adding)
            ]
            assert results[0][0] == results[1][0]
            assert torch.equal(results[0][1], results[1][1])


def test_unused_parameters_have_gradient_zero() -> None:
    model = copying(Branching(), LocalTraining())
    model.train(model.theta.clone(), batches(), 0.1, Key((1,)))
    for x, y in batches()[:2]:
        model._step(x, y, None)
    rare = model.parameter_views(model.grad)["rare.weight"]
    assert not rare.any()
    assert model.grad.any()


def test_parameters_keep_their_parts_of_the_vector() -> None:
    model = copying(Branching(), LocalTraining())
    views = model.parameter_views(model.grad)
    model.train(model.theta.clone(), batches(), 0.1, Key((1,)))
    for name, parameter in model.module.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.data_ptr() == views[name].data_ptr()
    _, gradient = model.gradient(model.theta.clone(), batches()[0], Key((1,)))
    assert torch.equal(gradient, model.grad)
