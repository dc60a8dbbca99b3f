"""Batches of a model from common kinds of data."""

from __future__ import annotations

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc

torch = pytest.importorskip("torch")

X = torch.randn(12, 16, generator=torch.Generator().manual_seed(0))


class TwoInputs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(16, 4)

    def forward(self, x, scale=None):
        return self.fc(x if scale is None else x * scale)


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))


def loader():
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, torch.arange(12)), batch_size=3)


@pytest.mark.parametrize(
    "batches",
    [
        X,
        X.numpy(),
        [X[:5], X[5:]],
        (X[:5], X[5:]),
        [(X, torch.arange(12))],
        loader(),
        {"input": X},
        [{"input": X, "labels": torch.arange(12)}],
        [({"input": X}, torch.arange(12))],
        iter([X]),
        lambda: [X],
        lambda: (part for part in X.split(4)),
    ],
)
def test_batches_are_what_people_have(batches):
    found = hc.ptq.calibrate(model(), batches, held=False)
    wanted = hc.ptq.Hessian(16)
    wanted.add(X.numpy())
    assert found["0.weight"].tokens == 12 and list(found) == ["0.weight", "2.weight"]
    assert np.array_equal(found["0.weight"].matrix, wanted.matrix)


def test_a_dict_reaches_the_arguments_of_its_names():
    found = hc.ptq.calibrate(TwoInputs(), {"x": X, "scale": torch.tensor(2.0), "other": 1}, held=False)
    assert np.array_equal(found["fc.weight"].absmax, 2 * X.abs().max(0).values.numpy().astype(np.float64))


def test_tokens_that_a_mask_leaves_out_do_not_count():
    class Embedded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(16, 4)

        def forward(self, x, attention_mask):
            return self.fc(x)

    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    found = hc.ptq.calibrate(Embedded(), {"x": X[:6].reshape(2, 3, 16), "attention_mask": mask}, held=False)
    wanted = hc.ptq.Hessian(16)
    wanted.add(X[[0, 1, 3]].numpy())
    assert np.array_equal(found["fc.weight"].matrix, wanted.matrix)


def test_every_fourth_batch_is_held_out():
    found = hc.ptq.calibrate(model(), list(X.split(1)))
    assert found["0.weight"].tokens == 9 and found.held["0.weight"].tokens == 3
    assert hc.ptq.calibrate(model(), [X], held=[X[:5]]).held["0.weight"].tokens == 5
    assert hc.ptq.calibrate(model(), [X]).held is None


@pytest.mark.parametrize(
    ("batches", "sentence"),
    [
        ([X, X[:, :7]], r"calibrate: batches: the model refuses batch 1 \(float32 12x7\): mat1 and mat2"),
        ([], "calibrate: batches is empty, expected one batch or more"),
        ([{"ids": X}], "calibrate: batches: batch 0 has the keys ids, but the model accepts input"),
        ([()], "calibrate: batches: batch 0 is empty"),
        ([3], "calibrate: batches: batch 0 is 3, expected a tensor"),
        ("X", "calibrate: batches is 'X', expected a DataLoader"),
        (7, "calibrate: batches is 7, expected a DataLoader"),
        (None, "calibrate: batches is None, expected a DataLoader"),
        (lambda: 7, "calibrate: batches is a function that returned 7, expected batches"),
        ([X * float("nan")], "calibrate: '0.weight': Hessian: x has nan at index"),
    ],
)
def test_other_batches_are_refused(batches, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        hc.ptq.calibrate(model(), batches)


def test_an_iterator_is_read_once():
    assert hc.ptq.calibrate(model(), iter([X])).held is None
    with bad_argument(ValueError, "batches", "value"):
        hc.ptq.quantize(model(), iter([X]), "int8", memory=100)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("way", ["turned", "btk,nk->btn", "btk,nk->bnt", "bt,nk->bnk", "stacked"])
def test_products_that_pytorch_computes_as_stacks_are_heard(way, frozen):
    layer, x = torch.nn.Linear(16, 4), X.reshape(3, 4, 16)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = layer

        def forward(self, x):
            if way == "turned":  # not contiguous: with a frozen weight, a product of stacks
                return self.fc(x.transpose(0, 1))
            if way == "stacked":
                return self.fc.weight.expand(3, 4, 16) @ x.transpose(1, 2)
            return torch.einsum(way, x if way[:3] == "btk" else x[:, :, 0], self.fc.weight)

    found = hc.ptq.calibrate(Model().requires_grad_(not frozen), x, held=False)
    if way == "bt,nk->bnk":  # a sum of no inputs
        assert not found
        return
    wanted = hc.ptq.Hessian(16)
    wanted.add(X.numpy())
    assert found["fc.weight"].tokens == 12 and np.allclose(found["fc.weight"].matrix, wanted.matrix, rtol=1e-5)


def test_an_iterator_is_refused_before_the_work_if_biases_read_it_again():
    with bad_argument(ValueError, "inputs", "value", "is an iterator, which can be read once"):
        pytest.importorskip("heterocompute.interop.torch").convert(
            model(), "int8", method="gptq", inputs=iter([X]), correct_bias=True
        )
