from pathlib import Path

import jax.numpy as jnp
import numpy as np
import PIL.Image
import pytest

from rosmo import envs
from rosmo.evaluate import Evaluator
from rosmo.evaluate.film import refuse_unknown, write_video


class Still:
    """An agent that always takes the first action."""

    window = 1

    def init(self, key):
        return {"weight": jnp.zeros(1)}

    def act(self, params, key, observation, *, greedy=False):
        return jnp.zeros(len(observation), jnp.int32)

    def loss(self, params, target_params, batch, key):
        raise NotImplementedError


def screens(count):
    for i in range(count):
        screen = np.zeros((210, 160, 3), np.uint8)
        screen[i * 10 : i * 10 + 10, :, 0] = 255
        yield screen


def test_a_gif_has_every_screen(tmp_path):
    assert write_video(tmp_path / "deep" / "a.gif", screens(5)) == 5
    with PIL.Image.open(tmp_path / "deep" / "a.gif") as film:
        assert film.n_frames == 5
        for i, screen in enumerate(screens(5)):
            film.seek(i)
            np.testing.assert_array_equal(np.asarray(film.convert("RGB")), screen)


def test_an_mp4_has_every_screen(tmp_path):
    cv2 = pytest.importorskip("cv2")
    assert write_video(tmp_path / "a.mp4", screens(5)) == 5
    film = cv2.VideoCapture(str(tmp_path / "a.mp4"))
    for expected in screens(5):
        found, screen = film.read()
        assert found
        assert np.abs(screen[..., ::-1].astype(int) - expected).mean() < 8  # it loses a little
    assert not film.read()[0]


def test_what_cannot_be_written_is_refused(tmp_path):
    pytest.importorskip("cv2")
    (tmp_path / "a.mp4").mkdir()
    with pytest.raises(IsADirectoryError, match=r"a.mp4 is a directory: choose the name of a file"):
        write_video(tmp_path / "a.mp4", screens(1))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"a.gif cannot be made, as .*file is no directory"):
        refuse_unknown(tmp_path / "file" / "a.gif")
    with pytest.raises(OSError, match=r"/proc/a.mp4 cannot be written \(.*\): choose another place"):
        write_video(Path("/proc/a.mp4"), screens(1))


def test_other_files_and_environments_without_screens_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a \.gif or an \.mp4, and not 'a.avi'"):
        write_video(tmp_path / "a.avi", screens(1))
    evaluator = Evaluator(Still(), lambda seed: envs.make("catch", seed=seed), episodes=1)
    with pytest.raises(TypeError, match=r"Catch cannot be recorded: give it a render\(\)"):
        next(evaluator.film(Still().init(None), 0))


def test_an_episode_is_filmed_from_its_first_screen_to_its_last(tmp_path):
    pytest.importorskip("ale_py")
    evaluator = Evaluator(Still(), lambda seed: envs.Atari("pong", seed, max_frames=40), episodes=1)
    film = list(evaluator.film(Still().init(None), 0))
    assert len(film) == 11
    assert film[0].shape == (210, 160, 3)


def test_a_link_where_a_video_is_made_is_not_followed(tmp_path):
    (tmp_path / "thesis.gif").write_text("years of work")
    (tmp_path / ".incomplete-a.gif").symlink_to(tmp_path / "thesis.gif")
    write_video(tmp_path / "a.gif", screens(2))
    assert (tmp_path / "thesis.gif").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gif", "thesis.gif"]
    assert not (tmp_path / "a.gif").is_symlink()


@pytest.mark.parametrize("name", ["a.gif", "a.mp4"])
def test_a_video_that_fails_leaves_what_was_there(tmp_path, name):
    def breaks():
        yield from screens(3)
        raise RuntimeError("the game broke")

    write_video(tmp_path / name, screens(2))
    before = (tmp_path / name).read_bytes()
    with pytest.raises(RuntimeError, match="the game broke"):
        write_video(tmp_path / name, breaks())
    assert (tmp_path / name).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]
