"""Check an installed wheel: its library loads and computes. A separate program; cibuildwheel runs it on each wheel."""

import torch

import st3
from st3.engine import native

print(native.describe_library())
used = native.kernels().name
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1024, 10)
).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(torch.rand_like(parameter) < 0.3)
x = torch.randn(2, 3, 8, 8)
for tune in (True, False):
    got = st3.engine.compile(model, x, tune=tune)(x)
    assert torch.allclose(got, model(x), atol=1e-5), f"the {used} kernels computed something else than torch"
print(f"the {used} kernels agree with torch")
