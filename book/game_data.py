"""Makes what the game on the front page plays with: tiles of photographs, and what a trained encoder sees in them.

    python book/game_data.py FOLDER src/contrastbook/studies/photographs.json

FOLDER holds the seven photographs of :data:`PHOTOGRAPHS` as PNG. They are in the public domain or CC0, and come with
scikit-image 0.26 (``skimage/data``) and with SciPy 1.9 (``misc/face.dat``). A tile is a square of a photograph. Its
views are its whole and four smaller squares, each as it is, mirrored, grey, and both. The encoder is trained here, on
overlapping tiles of the same photographs, without labels.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from contrastlab import data, methods, tasks
from contrastlab.pictures.augmentations import augmentation
from contrastlab.settings import Settings
from contrastlab.support.provenance import provenance
from contrastlab.train import pretrain

# file, factor that it is scaled by, what it shows, who made it and under which terms
PHOTOGRAPHS = (
    ("raccoon", 0.55, "a raccoon", "Judy Weggelaar, public domain"),
    ("astronaut", 1.0, "an astronaut", "NASA, public domain"),
    ("chelsea", 1.3, "a cat", "Stefan van der Walt, CC0"),
    ("coffee", 1.0, "a cup of coffee", "Rachel Michetti, CC0"),
    ("rocket", 1.0, "a rocket", "SpaceX, public domain"),
    ("galaxies", 0.6, "galaxies", "NASA and ESA, public domain"),
    ("retina", 0.37, "a retina", "Mikael Häggström, CC0"),
)
TILE = 96  # pixels
SHOWN = 80  # pixels of a tile in the sheet
COLUMNS, TILES = 16, 128
TRAINING_STRIDE = 24  # pixels between tiles that the encoder is trained on
SMALLEST, LARGEST = 46, 66  # side of a smaller square, pixels of a tile
SQUARES = 4
PLAINEST = 14.0  # a tile with a smaller standard deviation shows next to nothing
RECIPE = methods.get("fmicl/simclr").override({"temperature": 0.1})
SETTINGS = Settings(
    image_size=32,
    arch="tiny",
    stem="cifar",
    head="mlp",
    dim=16,
    augmentation="simclr",
    epochs=100,
    batch_size=128,
    lr=0.12,
    weight_decay=5e-4,
    schedule="cosine",
    milestones=(),
    knn_every=0,
)


def photograph(folder: Path, name: str, factor: float) -> np.ndarray:
    """uint8 ``[H, W, 3]``, scaled."""
    picture = Image.open(folder / f"{name}.png").convert("RGB")
    size = (round(picture.width * factor), round(picture.height * factor))
    return np.asarray(picture.resize(size, Image.Resampling.LANCZOS))


def tiles(pixels: np.ndarray, stride: int) -> list[np.ndarray]:
    """Squares of the picture, those that show something."""
    height, width = pixels.shape[:2]
    chosen = []
    for top in range(0, height - TILE + 1, stride):
        for left in range(0, width - TILE + 1, stride):
            tile = pixels[top : top + TILE, left : left + TILE]
            if tile.astype(float).std() > PLAINEST:
                chosen.append(tile)
    return chosen


def squares(rng: np.random.Generator) -> list[tuple[int, int, int]]:
    """(left, top, side) of the whole tile and of its smaller squares."""
    chosen = [(0, 0, TILE)]
    for _ in range(SQUARES):
        side = int(rng.integers(SMALLEST, LARGEST + 1))
        left, top = rng.integers(0, TILE - side + 1, size=2)
        chosen.append((int(left), int(top), side))
    return chosen


def variants(tile: np.ndarray, square: tuple[int, int, int]) -> list[np.ndarray]:
    """A square as it is, mirrored, grey, and grey and mirrored: uint8 ``[32, 32, 3]`` each."""
    left, top, side = square
    small = Image.fromarray(tile[top : top + side, left : left + side])
    small = small.resize((SETTINGS.image_size, SETTINGS.image_size), Image.Resampling.BILINEAR)
    grey = small.convert("L").convert("RGB")
    return [np.asarray(picture)[:, ::step].copy() for picture in (small, grey) for step in (1, -1)]


def images(pictures: list[np.ndarray], labels: list[int]) -> data.ImageSet:
    """Pictures ``[H, W, 3]`` of one size as a set."""
    items = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
    return data.ImageSet("tiles", items, torch.tensor(labels), ("tile",))


def sheet(chosen: list[np.ndarray]) -> str:
    """All tiles as one WebP picture, in base64."""
    picture = Image.new("RGB", (COLUMNS * SHOWN, len(chosen) // COLUMNS * SHOWN))
    for number, tile in enumerate(chosen):
        small = Image.fromarray(tile).resize((SHOWN, SHOWN), Image.Resampling.LANCZOS)
        picture.paste(small, (number % COLUMNS * SHOWN, number // COLUMNS * SHOWN))
    written = io.BytesIO()
    picture.save(written, "WEBP", quality=70, method=6)
    return base64.b64encode(written.getvalue()).decode()


def colours(tile: np.ndarray, square: tuple[int, int, int]) -> str:
    """Red, green and blue means of a square as six hexadecimal digits."""
    left, top, side = square
    mean = tile[top : top + side, left : left + side].reshape(-1, 3).mean(0)
    return "".join(f"{round(float(channel)):02x}" for channel in mean)


def make(folder: Path) -> dict[str, Any]:
    """Everything that the game knows."""
    rng = np.random.default_rng(0)
    training: list[np.ndarray] = []
    chosen: list[np.ndarray] = []
    owners: list[int] = []
    for number, (name, factor, _, _) in enumerate(PHOTOGRAPHS):
        pixels = photograph(folder, name, factor)
        training += tiles(pixels, TRAINING_STRIDE)
        found = tiles(pixels, TILE)
        share = -(-(TILES - len(chosen)) // (len(PHOTOGRAPHS) - number))
        picked = rng.permutation(len(found))[:share]
        chosen += [found[i] for i in sorted(picked)]
        owners += [number] * len(picked)
    if len(chosen) != TILES:
        raise SystemExit(f"{len(chosen)} tiles: {TILES} are needed")
    places = [squares(rng) for _ in chosen]
    run = pretrain(RECIPE, SETTINGS, images(training, [0] * len(training)), seed=0)
    pictures = [
        picture
        for tile, own in zip(chosen, places, strict=True)
        for square in own
        for picture in variants(tile, square)
    ]
    shown = images(pictures, [0] * len(pictures))
    embeddings, _ = tasks.encode(run.encoders, RECIPE.views, augmentation(SETTINGS.augmentation, 32), shown)
    steps = (embeddings * 127).round().to(torch.int8)
    return {
        "tile": TILE,
        "columns": COLUMNS,
        "dim": SETTINGS.dim,
        "temperature": RECIPE.temperature,
        "photographs": [[what, credit] for _, _, what, credit in PHOTOGRAPHS],
        "owners": owners,
        "squares": places,
        "colours": [[colours(tile, square) for square in own] for tile, own in zip(chosen, places, strict=True)],
        "embeddings": base64.b64encode(steps.numpy().tobytes()).decode(),
        "sheet": sheet(chosen),
        "made": {
            "recipe": RECIPE.name,
            "settings": SETTINGS.model_dump(mode="json", exclude_defaults=True),
            "training_tiles": len(training),
            "seed": 0,
            "loss": run.history[-1]["loss"],
            "machine": provenance("cpu"),
        },
    }


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=Path, help="folder")
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    made = make(asked.photographs)
    asked.out.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
