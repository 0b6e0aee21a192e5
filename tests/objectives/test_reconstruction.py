import math

import pytest
import torch

from recollect.objectives.reconstruction import image_loss, language_loss, tile_loss

VALID = torch.tensor([[True, False, True], [True, True, False]])


def sigmoid_cross_entropy(logit, pixel):
    p = 1 / (1 + math.exp(-logit))
    return -pixel * math.log(p) - (1 - pixel) * math.log(1 - p)


def image_case():
    logits = torch.randn(2, 3, 4, 5, 3, dtype=torch.float64)
    return logits, torch.randint(0, 256, logits.shape, dtype=torch.uint8)


def word_case():
    words = torch.randint(1, 7, (2, 3, 4))
    words[0, 0, 2:] = 0
    words[1, 1] = 0
    return torch.randn(2, 3, 4, 7, dtype=torch.float64), words


def test_images_are_averaged_over_pixels_and_channels_and_summed_over_steps():
    logits, images = image_case()
    steps = []
    for row, step in VALID.nonzero().tolist():
        pairs = zip(logits[row, step].flatten().tolist(), images[row, step].flatten().tolist(), strict=True)
        terms = [sigmoid_cross_entropy(logit, pixel / 255) for logit, pixel in pairs]
        steps.append(sum(terms) / len(terms))
    torch.testing.assert_close(image_loss(logits, images, valid=VALID).item(), sum(steps))
    torch.testing.assert_close(image_loss(logits, images, valid=VALID, reduction="mean").item(), sum(steps) / 4)
    torch.testing.assert_close(image_loss(logits, images.double() / 255, valid=VALID).item(), sum(steps))


def test_words_are_summed_and_padding_is_left_out():
    logits, words = word_case()
    expected = 0.0
    for row, step in VALID.nonzero().tolist():
        for scores, word in zip(logits[row, step].tolist(), words[row, step].tolist(), strict=True):
            if word:
                expected += math.log(sum(math.exp(score) for score in scores)) - scores[word]
    torch.testing.assert_close(language_loss(logits, words, valid=VALID).item(), expected)
    torch.testing.assert_close(language_loss(logits, words, valid=VALID, reduction="mean").item(), expected / 4)


def test_padding_has_no_gradient():
    logits, words = word_case()
    logits.requires_grad_()
    language_loss(logits, words).backward()
    assert not logits.grad[words == 0].any()
    assert logits.grad[words != 0].any(-1).all()


def test_tiles_are_averaged_over_cells_and_zero_is_a_symbol():
    logits = torch.randn(2, 3, 4, 4, 6, dtype=torch.float64)
    tiles = torch.randint(0, 6, (2, 3, 4, 4), dtype=torch.uint8)
    scores = -logits.log_softmax(-1).gather(-1, tiles.long()[..., None])[..., 0]
    torch.testing.assert_close(tile_loss(logits, tiles), scores.mean((2, 3)).sum())
    torch.testing.assert_close(tile_loss(logits, tiles, valid=VALID), scores.mean((2, 3))[VALID].sum())


@pytest.mark.parametrize(
    ("loss", "case"), [(image_loss, image_case), (language_loss, word_case), (tile_loss, word_case)]
)
def test_nan_in_a_step_that_is_not_valid_reaches_neither_loss_nor_gradient(loss, case):
    logits, seen = case()
    clean = loss(logits, seen, valid=VALID)
    logits[~VALID] = torch.nan
    logits.requires_grad_()
    dirty = loss(logits, seen, valid=VALID)
    dirty.backward()
    assert torch.equal(dirty, clean)
    assert logits.grad.isfinite().all()
    assert not logits.grad[~VALID].any()
    assert loss(logits, seen, valid=torch.zeros_like(VALID), reduction="mean").item() == 0


@pytest.mark.parametrize(
    ("loss", "case"), [(image_loss, image_case), (language_loss, word_case), (tile_loss, word_case)]
)
def test_float32_from_bfloat16(loss, case):
    logits, seen = case()
    narrow = logits.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        got = loss(narrow, seen)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, loss(narrow.float(), seen))


def test_the_best_logits_restore_the_image():
    _, images = image_case()
    logits = torch.zeros(images.shape, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.3)
    for _ in range(200):
        optimizer.zero_grad()
        image_loss(logits, images).backward()
        optimizer.step()
    middle = (images > 20) & (images < 235)
    torch.testing.assert_close(logits.sigmoid()[middle], images[middle] / 255, atol=0.02, rtol=0)


def test_mistakes_are_named():
    logits, images = image_case()
    with pytest.raises(ValueError, match="do not agree"):
        image_loss(logits[:, :2], images)
    with pytest.raises(ValueError, match=r"images are torch.int64: give uint8 0..255"):
        image_loss(logits, images.long())
    with pytest.raises(ValueError, match="do not agree"):
        language_loss(*[tensor[:, :, 0] for tensor in word_case()])
    with pytest.raises(ValueError, match=r"give bool \[2, 3\]"):
        image_loss(logits, images, valid=VALID[:, :2])
