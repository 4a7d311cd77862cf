"""An encoder that sees several streams."""

from __future__ import annotations

from torch import Tensor, nn

from contrastlab.encoders.encoder import Encoder


class Shared(nn.Module):
    """A stream's encoder that is the encoder of another stream: it has no parameters, buffers or state of its own.

    Beside its encoder in one ``ModuleList`` it is copied, moved and trained along with it.

    Args:
        encoder: of the other stream.
    """

    encoder: Encoder

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        # past nn.Module's bookkeeping: registered, every parameter would be in the state twice
        object.__setattr__(self, "encoder", encoder)

    @property
    def in_channels(self) -> int:
        """Channels of its input."""
        return self.encoder.in_channels

    def features(self, x: Tensor, pooled: bool = True) -> Tensor:
        """See :meth:`contrastlab.encoders.Encoder.features`."""
        return self.encoder.features(x, pooled)

    def forward(self, x: Tensor) -> Tensor:
        """See :meth:`contrastlab.encoders.Encoder.forward`."""
        out: Tensor = self.encoder(x)
        return out
