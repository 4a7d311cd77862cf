"""Speech: spectrograms against slow loops, masks by their distribution, files of every kind, made voices."""

import cmath
import hashlib
import io
import math
import sys
import wave
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from contrastbook.made import TASKS, voices
from contrastlab import data, methods, papers, tasks
from contrastlab.domains.speech import data as sounds
from contrastlab.domains.speech.augmentation import FLOOR, RANGE, draw_mask, log_mel, mel_matrix, mel_to_hertz, views_of
from contrastlab.domains.speech.data import WaveFiles, WaveSet, fitted, read_wave
from contrastlab.pictures.domain import modality
from contrastlab.pictures.linear import adapt
from contrastlab.settings import LinearProbe, Settings
from contrastlab.support.errors import (
    ArgumentError,
    MissingDataError,
    MissingExtraError,
    NotApplicableError,
    StorageError,
)
from contrastlab.tasks import Evaluation, Transfer
from contrastlab.train import pretrain
from contrastlab.views import Augmented
from made_runs import equal, generator, quiet, refused, resumed

SMALL = {
    "rate": 8000, "window": 128, "hop": 64, "mels": 8, "mean": -40.0, "std": 20.0, "frequency_mask": 3, "time_mask": 5,
}  # fmt: skip
SETTINGS = Settings(
    speech=SMALL, arch="tiny", stem="cifar", dim=16, epochs=2, batch_size=16, milestones=(), knn_every=0
)


def waves(count: int = 6, length: int = 400, seed: int = 0) -> torch.Tensor:
    return torch.randint(-9000, 9000, (count, length), generator=generator(seed)).to(torch.int16)


def wave_set(count: int = 48, length: int = 512, rate: int = 8000) -> WaveSet:
    return WaveSet("noise", waves(count, length), torch.arange(count) % 2, ("even", "odd"), rate)


def slow_hertz(mel: float) -> float:
    return mel * 200 / 3 if mel < 15 else 1000 * math.exp((mel - 15) * math.log(6.4) / 27)


def slow_matrix(bands: int, window: int, rate: int) -> list[list[float]]:
    highest = 15 + 27 * math.log(rate / 2000) / math.log(6.4)  # of rates above 2,000
    edges = [slow_hertz(k * highest / (bands + 1)) for k in range(bands + 2)]
    frequencies = [k * rate / window for k in range(window // 2 + 1)]

    def triangle(hertz: float, low: float, peak: float, high: float) -> float:
        height = min((hertz - low) / (peak - low), (high - hertz) / (high - peak))
        return 2 * max(height, 0.0) / (high - low)

    return [[triangle(hertz, *edges[band : band + 3]) for hertz in frequencies] for band in range(bands)]


@pytest.mark.parametrize(("bands", "window", "rate"), [(8, 128, 8000), (20, 512, 16000)])
def test_the_mel_matrix_is_that_of_loops(bands, window, rate) -> None:
    mine = mel_matrix(bands, window, rate)
    assert torch.allclose(mine, torch.tensor(slow_matrix(bands, window, rate)), rtol=1e-5, atol=1e-9)
    assert bool((mine.sum(1) > 0).all())
    assert mel_to_hertz(torch.tensor([3.0, 15.0, 40.0])).tolist() == pytest.approx([slow_hertz(m) for m in (3, 15, 40)])


def test_what_no_spectrogram_can_be_made_of_is_refused() -> None:
    view, fast = views_of(SETTINGS), wave_set(4, rate=16000)
    refused(
        (lambda: view.plain(torch.zeros(2, 3, 4)), ArgumentError, "^batch=.*waveforms"),
        (lambda: view.fitted(fast, torch.arange(4)), ArgumentError, "^speech.rate=8000: .*16000, the samples a second"),
    )


def slow_log_mel(samples: list[float], bands: int, window: int, hop: int, rate: int) -> np.ndarray:
    """A Fourier sum for every frame and frequency, one sample after the other."""
    matrix = slow_matrix(bands, window, rate)
    columns = []
    for centre in range(0, len(samples) + 1, hop):
        frame = []
        for k in range(window):
            at = centre - window // 2 + k
            hann = 0.5 - 0.5 * math.cos(2 * math.pi * k / window)
            frame.append(hann * samples[at] if 0 <= at < len(samples) else 0.0)
        power = [
            abs(sum(x * cmath.exp(-2j * math.pi * f * k / window) for k, x in enumerate(frame))) ** 2
            for f in range(window // 2 + 1)
        ]
        columns.append([sum(w * p for w, p in zip(row, power, strict=True)) for row in matrix])
    decibels = 10 * np.log10(np.maximum(np.array(columns).T ** 2, 1e-10))
    return np.maximum(decibels, decibels.max() - 80)


def test_a_spectrogram_is_that_of_loops() -> None:
    x = waves(2, 300)
    mine = log_mel(x, bands=8, window=64, hop=50, rate=8000)
    assert mine.shape == (2, 1, 8, 7)
    for k in range(2):
        slow = slow_log_mel([v / 32768 for v in x[k].tolist()], 8, 64, 50, 8000)
        np.testing.assert_allclose(mine[k, 0].numpy(), slow, atol=2e-3)
    silent = log_mel(torch.zeros(1, 512, dtype=torch.int16), bands=8, window=128, hop=64, rate=8000)
    assert torch.allclose(silent, torch.tensor(10 * math.log10(FLOOR)))
    tone = (8000 * torch.sin(2 * math.pi * 1000 * torch.arange(1024) / 8000)).to(torch.int16)[None]
    shown = log_mel(tone, bands=8, window=128, hop=64, rate=8000)[0, 0]
    band = int(mel_matrix(8, 128, 8000)[:, 16].argmax())  # 1,000 Hz is frequency 16 of 64
    assert (shown[:, 4:-4].argmax(0) == band).all()
    assert float(shown.max() - shown.min()) <= RANGE + 1e-4
    # twice the amplitude, four times the power: 12 dB of its square
    louder = log_mel((2 * tone).to(torch.int16), bands=8, window=128, hop=64, rate=8000)[0, 0]
    assert float((louder - shown)[band, 8]) == pytest.approx(40 * math.log10(2), abs=1e-3)


def test_masks_have_uniform_width_and_then_uniform_start() -> None:
    length, widest, count = 7, 3, 40_000
    masks = draw_mask(count, length, widest, generator(0), torch.device("cpu"))
    assert masks.shape == (count, length)
    found = Counter()
    for row in masks.tolist():
        places = [k for k, masked in enumerate(row) if masked]
        assert places == list(range(places[0], places[-1] + 1)) if places else True
        found[len(places), places[0] if places else -1] += 1
    expected = {(0, -1): 1 / 4}
    for width in range(1, widest + 1):
        for start in range(length - width + 1):
            expected[width, start] = 1 / 4 / (length - width + 1)
    assert set(found) == set(expected)
    keys = sorted(expected)
    fit = stats.chisquare([found[k] for k in keys], [count * expected[k] for k in keys])
    assert fit.pvalue > 1e-3


def test_a_random_view_is_the_spectrogram_with_masks_and_noise() -> None:
    view = views_of(SETTINGS.override(speech={"noise": 0.0}))
    x = waves(50, 640)
    plain, random = view.plain(x), view.random(x, generator(1))
    masked = random == -40.0
    assert torch.equal(random[~masked], plain[~masked])
    assert 0 < masked.double().mean() < 0.6
    rows, columns = masked[:, 0].all(2), masked[:, 0].all(1)
    assert rows.sum(1).max() == 3
    assert columns.sum(1).max() == 5
    assert torch.equal(random, view.random(x, generator(1)))
    assert not torch.equal(random, view.random(x, generator(2)))
    noisy = views_of(SETTINGS.override(speech={"frequency_mask": 0, "time_mask": 0}))
    noise = noisy.random(x, generator(1)) - plain
    assert float(noise.std()) == pytest.approx(0.25 * 20, rel=0.05)
    assert torch.equal(view.normalise(plain), (plain + 40) / 20)
    view, source = views_of(SETTINGS), wave_set(20)
    chosen = torch.tensor([1, 5, 7])
    values = view.plain(source.items[chosen]).double()
    made = view.fitted(source, chosen)
    assert made.mean == pytest.approx(float(values.mean()))
    assert made.std == pytest.approx(float(values.std(correction=0)), rel=1e-6)


def pcm(samples: np.ndarray, rate: int, width: int) -> bytes:
    """A wav file of ``[T]`` or ``[T, channels]`` in [−1, 1]."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        levels = np.rint(samples.ravel() * (2 ** (8 * width - 1) - 1)).astype(np.int64)
        raw = b"".join(int(v + 128 * (width == 1)).to_bytes(width, "little", signed=width > 1) for v in levels)
        file.writeframes(raw)
    return out.getvalue()


def tone(rate: int, hertz: float = 440.0, seconds: float = 0.1) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_wav_of_every_width_is_read(width) -> None:
    read = read_wave(pcm(tone(8000), 8000, width), 8000)
    assert read.dtype == np.int16
    assert np.abs(read / 32768 - tone(8000)).max() < (0.01 if width == 1 else 1e-4)


def test_stereo_is_averaged_and_other_rates_are_resampled() -> None:
    both = np.stack([tone(44100), np.zeros(4410)], 1)
    read = read_wave(pcm(both, 44100, 2), 16000)
    assert len(read) == 1600
    middle = slice(200, -200)
    assert np.abs(read[middle] / 32768 - tone(16000)[middle] / 2).max() < 2e-3


@pytest.mark.skipif(find_spec("soundfile") is None, reason="the extra speech is not installed")
def test_mp3_is_read_with_the_extra_and_counts_among_a_user_s_sounds(tmp_path) -> None:
    import soundfile

    for name in ("one/a", "one/b", "two/a", "two/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        soundfile.write(tmp_path / f"{name}.mp3", tone(16000), 16000, format="MP3")
    read = read_wave(tmp_path / "one/a.mp3", 16000) / 32768
    original = tone(16000)
    middle = slice(400, 1200)  # what stands before it depends on the decoder
    power = np.abs(np.fft.rfft(read[middle]))
    assert int(power.argmax()) == int(np.abs(np.fft.rfft(original[middle])).argmax())
    assert np.std(read[middle]) == pytest.approx(np.std(original[middle]), rel=0.05)
    assert len(data.load(f"waves:{tmp_path}").pretrain) == 2


@pytest.mark.skipif(find_spec("soundfile") is None, reason="the extra speech is not installed")
def test_flac_is_read_with_the_extra_alone(tmp_path, monkeypatch) -> None:
    import soundfile

    soundfile.write(tmp_path / "a.flac", tone(16000), 16000)
    assert np.abs(read_wave(tmp_path / "a.flac", 16000) / 32768 - tone(16000)).max() < 1e-3
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'contrastlab\[speech\]'"):
        read_wave(tmp_path / "a.flac", 16000)


def folder_of_waves(root: Path, classes: tuple[str, ...] = ("cat", "dog")) -> None:
    for name in classes:
        (root / name).mkdir(parents=True, exist_ok=True)
        for k in range(5):
            (root / name / f"{k}.wav").write_bytes(pcm(tone(22050, 300 + 50 * k, 0.02 * (k + 1)), 22050, 2))


def test_a_users_own_sounds(tmp_path, deny) -> None:
    folder_of_waves(tmp_path)
    made = data.load(f"waves:{tmp_path}")
    assert (len(made.train), len(made.test), made.train.classes) == (8, 2, ("cat", "dog"))
    assert made.train.rate == 16000
    assert made.train.items.shape[1] == 1600
    assert papers.plan("ring", "5c").select(f"waves:{tmp_path}")
    (tmp_path / "loose.wav").write_bytes(pcm(np.zeros(100), 16000, 2))  # silence is a sound
    beside = data.load(f"waves:{tmp_path}")
    assert (len(beside.pretrain), len(beside.train), len(beside.test)) == (9, 8, 2)  # without a class, as of pictures
    (tmp_path / "none").mkdir()
    nothing = r"no sound under .*none \(looked for .flac .mp3 .ogg .wav\)"
    for path, words in (("none", nothing), ("nowhere", "is not a folder")):
        with pytest.raises(MissingDataError, match=words):
            data.load(f"waves:{tmp_path / path}")
    deny("scandir", tmp_path / "dog")  # no missing class
    with pytest.raises(StorageError, match=r"dog may not be read \(Permission denied\)"):
        data.load(f"waves:{tmp_path}")


def touch(path: Path, rate: int = 16000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pcm(tone(rate, seconds=0.01), rate, 2))


def test_published_sets_are_read_in_their_layout(tmp_path) -> None:
    for part in ("train-clean-100", "dev-clean"):
        for speaker in ("19", "103"):
            for k in range(5):
                touch(tmp_path / "LibriSpeech" / part / speaker / "1" / f"{speaker}-1-{k}.flac")  # wav inside will do
    speech = data.load("librispeech", tmp_path)
    assert speech.train.classes == ("19", "103")
    assert (len(speech.train), len(speech.test)) == (8, 2)
    assert speech.train[0].shape == (sounds.LENGTH,)
    assert isinstance(speech.train, WaveFiles)
    assert len(data.load("librispeech_speaker", tmp_path).test) == 2
    for person in range(1, 15):
        touch(tmp_path / "AudioMNIST" / "data" / f"{person:02d}" / f"{person % 10}_{person:02d}_0.wav", 48000)
    digits = data.load("audiomnist", tmp_path)
    assert [p.split("/")[0] for p in digits.train.paths] == ["01", "02"]
    assert len(digits.test) == 12
    assert digits.train.labels.tolist() == [1, 2]
    words = tmp_path / "SpeechCommands" / "speech_commands_v0.01"
    for word in ("bed", "zero", "_background_noise_"):
        for k in range(2):
            touch(words / word / f"{k}.wav")
    (words / "testing_list.txt").write_text("bed/1.wav\nzero/0.wav\n")
    commands = data.load("google_commands", tmp_path)
    assert commands.train.paths == ("bed/0.wav", "zero/1.wav")
    assert commands.test.paths == ("bed/1.wav", "zero/0.wav")
    assert commands.test.labels.tolist() == [0, 1]
    fluent = tmp_path / "fluent_speech_commands_dataset"
    (fluent / "data").mkdir(parents=True)
    for k, part in enumerate(("train", "valid", "test")):
        touch(fluent / "wavs" / f"{part}.wav")
        row = f"0,wavs/{part}.wav,s,text,{'increase' if k != 1 else 'decrease'},heat,none\n"
        extra = "0,wavs/train.wav,s,text,decrease,music,kitchen\n" if part == "train" else ""
        header = ",path,speakerId,transcription,action,object,location\n"
        (fluent / "data" / f"{part}_data.csv").write_text(header + row + extra)
    action = data.load("fluent_action", tmp_path)
    assert action.train.classes == ("decrease", "increase")
    assert action.train.labels.tolist() == [1, 0, 0]
    assert action.test.labels.tolist() == [1]
    assert data.load("fluent_location", tmp_path).train.classes == ("kitchen", "none")
    assert data.load("fluent_object", tmp_path).train.classes == ("heat", "music")


def test_spoken_digits_are_split_by_take_or_by_speaker(tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [(d, s, t) for d in range(3) for s in ("ann", "bob", "cyd") for t in range(7)]
    sound = pcm(tone(8000), 8000, 2)
    table = pa.table(
        {"audio": [sound] * len(rows), **{n: [r[k] for r in rows] for k, n in enumerate(("digit", "speaker", "take"))}}
    )
    (tmp_path / "fsdd").mkdir()
    pq.write_table(table, tmp_path / "fsdd" / "fsdd.parquet")
    digit, speaker, unseen = (data.load(name, tmp_path) for name in ("fsdd", "fsdd_speaker", "fsdd_unseen"))
    assert (len(digit.train), len(digit.test)) == (18, 45)
    assert speaker.train.classes == ("ann", "bob", "cyd")
    assert unseen.test.labels.bincount().tolist() == [14, 14, 14]
    assert len(unseen.train) == 21
    assert "bob and cyd" in unseen.note


def test_the_made_voices_are_the_same_byte_for_byte_and_those_of_a_test_never_pre_trained_on() -> None:
    whole = data.load("voices")
    trained = {bytes(row.numpy().tobytes()) for row in whole.pretrain.items}
    for task in TASKS:
        made = data.load(f"voices_{task}")
        assert len(made.train.classes) >= 3
        for part in (made.train, made.test):
            assert (part.labels.bincount(minlength=len(part.classes)) > 0).all()
        assert not trained & {bytes(row.numpy().tobytes()) for row in made.test.items}
    waves_, about = voices._corpus()
    assert hashlib.sha256(waves_.numpy().astype("<i2").tobytes()).hexdigest()[:16] == "a766a4e47874b046"
    assert len(about) == len(waves_)
    voices._corpus.cache_clear()
    assert torch.equal(voices._corpus()[0], waves_)


def test_a_voice_is_its_pitch_and_a_word_its_formants() -> None:
    low, high = voices.VOICES[0], voices.VOICES[-1]

    def pitch(voice: voices.Voice) -> float:
        sound = voices.say("papapapa", voice, np.random.default_rng(0)).astype(float)
        both = np.correlate(sound, sound, "full")[len(sound) - 1 :]
        lags = np.arange(len(both))
        return 8000 / lags[34:120][both[34:120].argmax()]  # longer than any formant's period

    assert pitch(low) < 1.15 * low.pitch
    assert pitch(high) > 1.5 * pitch(low)
    for word in ("", "pax", "xa", "p"):
        with pytest.raises(ArgumentError, match="^word="):
            voices.say(word, low, np.random.default_rng(0))
    loud = voices.say("ti", low, np.random.default_rng(0))
    assert 1000 < np.abs(loud).max() < 32767


def test_speech_trains_and_resumes(tmp_path) -> None:
    recipe = methods.get("ring/mocoring").override({"keys.size": 32, "keys.shuffle_groups": 1})
    how = {"seed": 1, "log": quiet}
    whole = pretrain(recipe, SETTINGS, wave_set(), **how)
    pieces, _ = resumed(lambda: pretrain(recipe, SETTINGS, wave_set(), folder=tmp_path, max_minutes=0, **how))
    assert equal(whole.encoders, pieces.encoders)
    assert whole.encoders[0].in_channels == 1
    with pytest.raises(ArgumentError, match="^speech.rate=8000"):
        pretrain(recipe, SETTINGS, wave_set(rate=16000), **how)


def test_files_and_memory_give_the_same_views(tmp_path) -> None:
    folder_of_waves(tmp_path)
    paths = tuple(sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.wav")))
    labels = torch.arange(len(paths)) % 2
    files = WaveFiles("f", tmp_path, paths, labels, ("a", "b"), 8000, 700)
    held = WaveSet("h", torch.stack([files[k] for k in range(len(paths))]), labels, ("a", "b"), 8000)
    view = modality(files).augmentation(SETTINGS)
    nets = modality(held).encoders(Augmented(1), held, SETTINGS)
    one, other = (tasks.encode(nets, Augmented(1), view, source)[0] for source in (files, held))
    assert torch.equal(one, other)
    assert torch.equal(fitted(np.arange(5, dtype=np.int16), 3), torch.tensor([0, 1, 2], dtype=torch.int16))
    assert files.take(4).fingerprint != files.fingerprint


def test_transfer_of_speech_is_the_linear_task_on_the_targets_own_statistics() -> None:
    train = wave_set(40)
    splits = data.Splits("noise", train, train, replace(wave_set(30), items=waves(30, 512, 5)), "")
    view = modality(train).augmentation(SETTINGS)
    nets = modality(train).encoders(Augmented(1), train, SETTINGS)
    probe = LinearProbe(solver="lbfgs", features="pooled")
    evaluation = Evaluation(Augmented(1), view, splits)
    measured = Transfer(probe).score(nets, evaluation)["transfer"]
    own = replace(evaluation, augmentation=view.fitted(train, torch.arange(40)))
    assert torch.equal(measured.correct, tasks.Linear(probe).score(nets, own)["linear"].correct)
    moved = replace(splits, test=replace(splits.test, items=splits.test.items // 2))
    shown = adapt(Transfer(probe), nets, replace(evaluation, data=moved)).augmentation
    assert (shown.mean, shown.std) == (own.augmentation.mean, own.augmentation.std)
    text = data.load("grammar_pairs")
    with pytest.raises(NotApplicableError, match="images and waveforms; grammar_pairs has sentences"):
        Transfer(probe).score(nets, replace(evaluation, data=text))
