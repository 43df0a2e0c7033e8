"""The networks of `robocache-bench train`, in plain torch.

The number of parameters is checked if the published number is known. make(name, shapes, tiny)
builds a model on the CPU after torch.manual_seed(seed), so that all runners start with the same
weights.

net(batch, draw) returns the loss. It takes preprocessed float tensors: `state` [B,To,S], `action`
[B,Ta,A], and for each camera `frames[k]` [B,To,3,H,W]; and the mask `action_is_pad` [B,Ta]. draw is
a torch.Generator on the device, seeded by (seed, step). Noise, time steps and latents are therefore
the same in all runners.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


def count(m):
    return sum(p.numel() for p in m.parameters())


class Transformer(nn.Module):
    """The network of the earlier suite:

    no mask, no positions.

    inputs [B,T,526] → actions [B,T,7]. The loss is MSE without padded rows.
    """

    def __init__(self, inputs=526, outputs=7, width=1024, heads=16, layers=8):
        super().__init__()
        self.into = nn.Linear(inputs, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, outputs)

    def forward(self, batch, draw):
        return masked_mean(
            F.mse_loss(
                self.out(self.layers(self.into(batch["state"]))), batch["action"], reduction="none"
            ),
            batch["action_is_pad"],
        )


def masked_mean(errors, is_pad):
    keep = (~is_pad).unsqueeze(-1).to(errors.dtype)
    return (errors * keep).sum() / (keep.sum() * errors.shape[-1]).clamp_min(1)


# ResNet-18 (He et al. 2015) as in torchvision, without its last layer.


class Block(nn.Module):
    def __init__(self, a, b, stride, norm):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), norm(b)
        self.conv2, self.norm2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), norm(b)
        self.skip = (
            nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), norm(b))
            if stride > 1 or a != b
            else nn.Identity()
        )

    def forward(self, x):
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + self.skip(x))


def resnet_trunk(norm=nn.BatchNorm2d, base=64):
    """Returns the convolutions: [N,3,H,W] → [N,8·base,H/32,W/32]."""
    layers = [nn.Conv2d(3, base, 7, 2, 3, bias=False), norm(base), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for a, b, stride in (
        (base, base, 1),
        (base, 2 * base, 2),
        (2 * base, 4 * base, 2),
        (4 * base, 8 * base, 2),
    ):
        layers += [Block(a, b, stride, norm), Block(b, b, 1, norm)]
    return nn.Sequential(*layers)


class ResNet18(nn.Module):
    """Predicts 8 actions from the frame of one camera and the state, with MSE."""

    def __init__(self, state=26, action=26, ahead=8, base=64):
        super().__init__()
        self.trunk, self.shape = resnet_trunk(base=base), (ahead, action)
        self.head = nn.Sequential(
            nn.Linear(8 * base + state, 512), nn.ReLU(), nn.Linear(512, ahead * action)
        )

    def forward(self, batch, draw):
        frames = next(iter(batch["frames"].values()))[:, -1]
        x = self.trunk(frames).mean((2, 3))
        out = self.head(torch.cat([x, batch["state"][:, -1]], -1)).unflatten(-1, self.shape)
        return masked_mean(
            F.mse_loss(out, batch["action"], reduction="none"), batch["action_is_pad"]
        )


# Diffusion Policy (Chi et al. 2023): ConditionalUnet1D and its image encoder.


class Conv(nn.Sequential):
    def __init__(self, a, b, kernel=5, groups=8):
        super().__init__(
            nn.Conv1d(a, b, kernel, padding=kernel // 2), nn.GroupNorm(groups, b), nn.Mish()
        )


class Residual(nn.Module):
    def __init__(self, a, b, cond):
        super().__init__()
        self.first, self.second = Conv(a, b), Conv(b, b)
        self.film = nn.Sequential(nn.Mish(), nn.Linear(cond, 2 * b))
        self.skip = nn.Conv1d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, cond):
        scale, bias = self.film(cond).unsqueeze(-1).chunk(2, 1)
        return self.second(self.first(x) * scale + bias) + self.skip(x)


class UNet(nn.Module):
    """Predicts the noise [B,T,A] from noisy actions [B,T,A], step [B] and condition [B,C]."""

    def __init__(self, action, cond, widths, step):
        super().__init__()
        self.step = nn.Sequential(
            Sinusoid(step), nn.Linear(step, 4 * step), nn.Mish(), nn.Linear(4 * step, step)
        )
        cond += step
        pairs = list(zip((action, *widths), widths))
        last = widths[-1]
        self.down = nn.ModuleList(
            nn.ModuleList(
                [
                    Residual(a, b, cond),
                    Residual(b, b, cond),
                    nn.Conv1d(b, b, 3, 2, 1) if b != last else nn.Identity(),
                ]
            )
            for a, b in pairs
        )
        self.mid = nn.ModuleList([Residual(last, last, cond), Residual(last, last, cond)])
        self.up = nn.ModuleList(
            nn.ModuleList(
                [Residual(2 * b, a, cond), Residual(a, a, cond), nn.ConvTranspose1d(a, a, 4, 2, 1)]
            )
            for a, b in reversed(pairs[1:])
        )
        self.out = nn.Sequential(Conv(widths[0], widths[0]), nn.Conv1d(widths[0], action, 1))

    def forward(self, x, step, cond):
        x, cond, kept = x.transpose(1, 2), torch.cat([self.step(step), cond], -1), []
        for first, second, smaller in self.down:
            x = second(first(x, cond), cond)
            kept.append(x)
            x = smaller(x)
        for block in self.mid:
            x = block(x, cond)
        for first, second, larger in self.up:
            x = larger(second(first(torch.cat([x, kept.pop()], 1), cond), cond))
        return self.out(x).transpose(1, 2)


class Sinusoid(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer(
            "rates",
            torch.exp(torch.arange(width // 2) * -(math.log(10000) / (width // 2 - 1))),
            persistent=False,
        )

    def forward(self, x):
        x = x.float().unsqueeze(-1) * self.rates
        return torch.cat([x.sin(), x.cos()], -1)


class Encoder(nn.Module):
    """Encodes a camera, [N,3,H,W] → [N,64].

    It is a ResNet-18 with GroupNorm, 32 spatial-softmax key points and a linear layer.
    """

    def __init__(self, base=64):
        super().__init__()
        self.trunk, self.points, self.out = (
            resnet_trunk(lambda c: nn.GroupNorm(c // 16, c), base),
            nn.Conv2d(8 * base, 32, 1),
            nn.Linear(64, 64),
        )

    def forward(self, x):
        heat = self.points(self.trunk(x))
        h, w = heat.shape[-2:]
        share = heat.flatten(2).softmax(-1).unflatten(-1, (h, w))
        ys, xs = (
            torch.linspace(-1, 1, h, device=x.device),
            torch.linspace(-1, 1, w, device=x.device),
        )
        return F.relu(
            self.out(
                torch.stack(
                    [(share.sum(-2) * xs).sum(-1), (share.sum(-1) * ys).sum(-1)], -1
                ).flatten(1)
            )
        )


class Diffusion(nn.Module):
    """Predicts the noise of 100 DDPM steps with a squared-cosine schedule.

    It uses random crops of 84×84 of each camera.
    """

    STEPS, CROP = 100, 84

    def __init__(
        self, state, action, cameras=(), widths=(256, 512, 1024), step=256, observed=2, base=64
    ):
        super().__init__()
        self.cameras = nn.ModuleList(Encoder(base) for _ in cameras)
        self.unet = UNet(action, observed * (state + 64 * len(cameras)), widths, step)
        bar = lambda t: math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2  # noqa: E731
        beta = torch.tensor(
            [
                min(1 - bar((i + 1) / self.STEPS) / bar(i / self.STEPS), 0.999)
                for i in range(self.STEPS)
            ]
        )
        self.register_buffer("alphas", (1 - beta).cumprod(0), persistent=False)

    def forward(self, batch, draw):
        action, seen = batch["action"], [batch["state"]]
        size, device = len(action), action.device
        for encoder, frames in zip(self.cameras, batch.get("frames", {}).values(), strict=True):
            seen.append(
                encoder(random_crops(frames, self.CROP, draw).flatten(0, 1)).unflatten(
                    0, frames.shape[:2]
                )
            )
        noise = torch.randn(action.shape, generator=draw, device=device)
        step = torch.randint(self.STEPS, (size,), generator=draw, device=device)
        a = self.alphas[step].view(-1, 1, 1)
        return F.mse_loss(
            self.unet(
                a.sqrt() * action + (1 - a).sqrt() * noise,
                step,
                torch.cat([x.flatten(1) for x in seen], -1),
            ).float(),
            noise,
        )


def random_crops(frames, size, draw):
    """Returns one random crop per sample, computed on the device without synchronization."""
    b, t, c, h, w = frames.shape
    at = torch.rand(2, b, 1, generator=draw, device=frames.device)
    ys, xs = (
        (at[k] * (n - size + 1)).long() + torch.arange(size, device=frames.device)
        for k, n in enumerate((h, w))
    )
    rows = frames.gather(3, ys[:, None, None, :, None].expand(b, t, c, size, w))
    return rows.gather(4, xs[:, None, None, None, :].expand(b, t, c, size, size))


# ACT (Zhao et al. 2023) as in LeRobot: one decoder layer, frozen batch norm.


class FrozenNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.register_buffer("scale", torch.ones(c, 1, 1), persistent=False)
        self.register_buffer("bias", torch.zeros(c, 1, 1), persistent=False)

    def forward(self, x):
        return x * self.scale + self.bias


class ACT(nn.Module):
    def __init__(
        self,
        state=14,
        action=14,
        cameras=("",),
        width=512,
        heads=8,
        ff=3200,
        layers=4,
        latent=32,
        chunk=100,
        base=64,
    ):
        super().__init__()
        encoder = lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, heads, ff, 0.1, batch_first=True),
            layers,
            enable_nested_tensor=False,
        )  # noqa: E731
        self.latent, self.chunk, self.width = latent, chunk, width
        self.vae, self.vae_class, self.vae_out = (
            encoder(),
            nn.Embedding(1, width),
            nn.Linear(width, 2 * latent),
        )
        self.vae_state, self.vae_action = nn.Linear(state, width), nn.Linear(action, width)
        self.trunk, self.frames = resnet_trunk(FrozenNorm, base), nn.Conv2d(8 * base, width, 1)
        self.encoder, self.state, self.z = (
            encoder(),
            nn.Linear(state, width),
            nn.Linear(latent, width),
        )
        self.places = nn.Embedding(2, width)
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(width, heads, ff, 0.1, batch_first=True),
            1,
            norm=nn.LayerNorm(width),
        )
        self.queries, self.head = nn.Embedding(chunk, width), nn.Linear(width, action)

    def forward(self, batch, draw):
        state, action, pad = batch["state"][:, -1], batch["action"], batch["action_is_pad"]
        b, device = len(state), state.device
        x = torch.cat(
            [
                self.vae_class.weight.expand(b, 1, -1),
                self.vae_state(state).unsqueeze(1),
                self.vae_action(action),
            ],
            1,
        )
        hidden = F.pad(pad, (2, 0), value=False)
        mu, log_var = (
            self.vae_out(
                self.vae(
                    x + position_waves(x.shape[1], self.width, device), src_key_padding_mask=hidden
                )[:, 0]
            )
            .float()
            .chunk(2, -1)
        )
        z = mu + (log_var / 2).exp() * torch.randn(mu.shape, generator=draw, device=device)
        tokens = [torch.stack([self.z(z), self.state(state)], 1) + self.places.weight]
        for frames in batch["frames"].values():
            seen = self.frames(self.trunk(frames[:, -1])).flatten(2).transpose(1, 2)
            tokens.append(seen + position_waves(seen.shape[1], self.width, device))
        out = self.head(
            self.decoder(self.queries.weight.expand(b, -1, -1), self.encoder(torch.cat(tokens, 1)))
        )
        kl = -0.5 * (1 + log_var - mu.square() - log_var.exp()).sum(-1).mean()
        return masked_mean(F.l1_loss(out, action, reduction="none"), pad) + 10 * kl


def position_waves(n, width, device):
    rate = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10000) / width))
    x = torch.arange(n, device=device).unsqueeze(-1) * rate
    return torch.stack([x.sin(), x.cos()], -1).flatten(1)


class EMA:
    """The moving average of the weights, with decay 1 − (1+s)^−0.75, at most 0.9999."""

    def __init__(self, model):
        self.model, self.kept = model, [p.detach().clone() for p in model.parameters()]

    def update(self, step):
        decay = min(1 - (1 + step) ** -0.75, 0.9999)
        torch._foreach_lerp_(self.kept, [p.detach() for p in self.model.parameters()], 1 - decay)


# settings of the optimizer
SPECS = {
    "transformer": dict(lr=1e-4),
    "diffusion-lowdim": dict(lr=1e-4, betas=(0.95, 0.999), decay=1e-6, ema=True, warm=500),
    "diffusion": dict(lr=1e-4, betas=(0.95, 0.999), decay=1e-6, ema=True, warm=500),
    "resnet18": dict(lr=1e-4),
    "act": dict(lr=1e-5, decay=1e-4),
}
PARAMETERS = {  # published counts: (model, state, action, cameras)
    ("transformer", 526, 7, 0): 101_316_615,
    ("diffusion-lowdim", 14, 7, 0): 65_620_231,
    ("diffusion", 14, 7, 1): 252_217_991 + 11_197_088,
    ("diffusion", 26, 26, 1): 252_974_234 + 11_197_088,
    ("resnet18", 26, 26, 1): 11_559_184,
    ("act", 14, 14, 1): 51_613_582,
}


def make(name, state, action, cameras=(), tiny=False):
    """Returns the network. tiny selects a version small enough for a CPU."""
    if name == "transformer":
        net = Transformer(state, action, *((64, 4, 2) if tiny else ()))
    elif name == "diffusion-lowdim":
        net = Diffusion(
            state,
            action,
            widths=(32, 64, 128) if tiny else (256, 512, 1024),
            step=32 if tiny else 256,
        )
    elif name == "diffusion":
        net = Diffusion(
            state,
            action,
            cameras,
            (32, 64, 128) if tiny else (512, 1024, 2048),
            32 if tiny else 128,
            base=16 if tiny else 64,
        )
    elif name == "resnet18":
        net = ResNet18(state, action, base=16 if tiny else 64)
    else:
        net = ACT(
            state,
            action,
            cameras,
            **(dict(width=64, heads=4, ff=128, layers=1, chunk=16, base=16) if tiny else {}),
        )
    want = PARAMETERS.get((name, state, action, len(cameras)))
    if want is not None and not tiny and count(net) != want:
        raise RuntimeError(f"{name}: {count(net):,} parameters, published {want:,}")
    return net


def optimiser(name, net, steps, fused):
    """Returns AdamW, its schedule or None, and the moving average or None.

    The schedule rises linearly, then follows a cosine over the steps of the run.
    """
    spec = SPECS[name]
    opt = torch.optim.AdamW(
        net.parameters(),
        spec["lr"],
        betas=spec.get("betas", (0.9, 0.999)),
        weight_decay=spec.get("decay", 1e-2),
        fused=fused,
    )
    warm = spec.get("warm", 0)
    schedule = (
        torch.optim.lr_scheduler.LambdaLR(
            opt,
            lambda s: min(
                (s + 1) / warm,
                (1 + math.cos(math.pi * min(max(s - warm, 0) / max(steps - warm, 1), 1))) / 2,
            ),
        )
        if warm
        else None
    )
    return opt, schedule, EMA(net) if spec.get("ema") else None
