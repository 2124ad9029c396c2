"""Settings: argument, then variable, then default; and errors that say where to look."""

from __future__ import annotations

import copy
import pickle
import warnings
from decimal import Decimal

import pytest

from costlens.config import Config, is_under_test, resolve_config
from costlens.errors import ConfigError, CostlensError

Environ = pytest.MonkeyPatch


def test_an_argument_goes_before_the_variable_and_the_variable_before_the_default(
    monkeypatch: Environ,
) -> None:
    """Argument > environment > default, for each setting by itself."""
    monkeypatch.setenv("COSTLENS_NAME", "from-variable")
    monkeypatch.setenv("COSTLENS_CURRENCY", "EUR")
    config = resolve_config(name="from-argument", gpu_hour_price=None)
    assert (config.name, config.currency, config.window_s) == ("from-argument", "EUR", 10.0)
    assert config.gpu_hour_price is None


def test_ready_settings_are_overridden_by_arguments_only(monkeypatch: Environ) -> None:
    """A configuration made earlier does not change with the environment."""
    monkeypatch.setenv("COSTLENS_CURRENCY", "EUR")
    ready = Config(name="a")
    monkeypatch.setenv("COSTLENS_CURRENCY", "CHF")
    monkeypatch.setenv("COSTLENS_WINDOW_S", "7")
    config = resolve_config(ready, name="b")
    assert (config.name, config.currency, config.window_s) == ("b", "EUR", 10.0)
    assert resolve_config(ready, name=None) is ready


def test_it_stays_known_which_settings_were_set(monkeypatch: Environ) -> None:
    """A default is a default, even after other settings were overridden."""
    monkeypatch.delenv("COSTLENS_DIR")
    monkeypatch.setenv("COSTLENS_CURRENCY", "EUR")
    config = resolve_config(Config(name="a"), gpu_hour_price="2.5")
    assert config.model_fields_set == {"name", "currency", "gpu_hour_price"}


def test_a_setting_knows_its_source(monkeypatch: Environ) -> None:
    """Argument, variable or default, also after ready settings were overridden."""
    monkeypatch.setenv("COSTLENS_CURRENCY", "EUR")
    config = resolve_config(Config(name="a"), gpu_hour_price="2.5")
    assert config.source_of("name") == "argument name"
    assert config.source_of("gpu_hour_price") == "argument gpu_hour_price"
    assert config.source_of("currency") == "COSTLENS_CURRENCY"
    assert config.source_of("window_s") == "default"
    assert pickle.loads(pickle.dumps(config)).source_of("name") == "argument name"


def test_a_misspelt_variable_warns_with_the_nearest_name(monkeypatch: Environ) -> None:
    """C118: the warning names the unknown variable and the closest one that exists."""
    monkeypatch.setenv("COSTLENS_GPU_HOURPRICE", "2.50")
    with pytest.warns(
        UserWarning, match="COSTLENS_GPU_HOURPRICE .*COSTLENS_GPU_HOUR_PRICE"
    ) as seen:
        assert resolve_config().gpu_hour_price is None
    assert len(seen) == 1
    assert "2.50" not in str(seen[0].message), "a value may be a secret"


def test_variables_of_the_tools_around_costlens_are_no_mistake(monkeypatch: Environ) -> None:
    """What the test suite reads is no misspelt setting, and neither is another prefix."""
    monkeypatch.setenv("COSTLENS_REQUIRE", "")
    monkeypatch.setenv("COSTLENSX_NAME", "x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve_config()


@pytest.mark.parametrize("text", ["false", "0", "no", "OFF", " False "])
def test_every_way_to_say_no_is_no(text: str, monkeypatch: Environ) -> None:
    """C118: `false`, `0`, `no` and `OFF` turn a switch off, as variable and as argument."""
    monkeypatch.setenv("COSTLENS_ENABLED", text)
    assert resolve_config().enabled is False
    assert resolve_config(summary=text).summary is False


@pytest.mark.parametrize("text", ["true", "1", "Yes", "ON"])
def test_every_way_to_say_yes_is_yes(text: str, monkeypatch: Environ) -> None:
    """C118: the four words for yes."""
    monkeypatch.setenv("COSTLENS_AUTOATTACH", text)
    assert resolve_config().autoattach is True


@pytest.mark.parametrize("make", [Config, resolve_config])
def test_a_misspelt_truth_is_an_error(make: type[Config], monkeypatch: Environ) -> None:
    """C118: `ture` is refused, naming the variable, the value and what is allowed."""
    monkeypatch.setenv("COSTLENS_ENABLED", "ture")
    with pytest.raises(ConfigError) as caught:
        make()
    message = str(caught.value)
    assert "COSTLENS_ENABLED" in message
    assert "'ture'" in message
    assert "1, true, yes, on and 0, false, no, off" in message
    assert isinstance(caught.value, CostlensError)
    assert isinstance(caught.value, ValueError)


def test_an_empty_variable_is_not_set(monkeypatch: Environ) -> None:
    """`COSTLENS_ENABLED=` means the default, as for every OTEL variable; so does a price."""
    monkeypatch.setenv("COSTLENS_ENABLED", "")
    monkeypatch.setenv("COSTLENS_GPU_HOUR_PRICE", "")
    config = resolve_config()
    assert (config.enabled, config.gpu_hour_price) == (True, None)


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("window_s", 0, "greater than or equal to 0.01"),
        ("window_s", "soon", "a valid number"),
        ("gpu_hour_price", -1, "greater than or equal to 0"),
        ("node_hour_price", "2,50", "a plain decimal number"),
        ("node_hour_price", "nan", "a plain decimal number"),
        ("node_hour_price", "1_000", "a plain decimal number"),
        ("node_hour_price", "١٢", "a plain decimal number"),
        ("gpu_hour_price", "1e999", "less than 1000000000"),
        ("gpu_hour_price", "1e9", "less than 1000000000"),
        ("gpu_hour_price", "1e-30", "no more than 12 decimal places"),
        ("gpu_hour_price", "1e-99999", "a plain decimal number"),
        ("currency", "euro", r"\^\[A-Z\]\{3\}\$"),
        ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("iteration_span_every", 0, "greater than or equal to 1"),
        ("flush_timeout_s", 61, "less than or equal to 60"),
        ("name", "", "at least 1 character"),
    ],
)
def test_a_bad_value_names_setting_value_source_and_what_is_allowed(
    setting: str, value: object, allowed: str, monkeypatch: Environ
) -> None:
    """The same message for an argument and for a variable, but for the source."""
    with pytest.raises(ConfigError, match=rf"{setting} cannot be .*argument {setting}.*{allowed}"):
        resolve_config(**{setting: value})
    if value == "":
        return
    monkeypatch.setenv(f"COSTLENS_{setting.upper()}", str(value))
    with pytest.raises(ConfigError, match=rf"{value}'.*from COSTLENS_{setting.upper()}.*{allowed}"):
        resolve_config()


def test_a_setting_that_does_not_exist_is_an_error_with_the_nearest_name() -> None:
    """An argument is code: misspelling it is refused, not warned about."""
    with pytest.raises(ConfigError, match=r"gpu_price is not .*did you mean gpu_hour_price"):
        resolve_config(gpu_price=2)


def test_all_mistakes_are_said_at_once(monkeypatch: Environ) -> None:
    """Two bad values are two lines of one error."""
    monkeypatch.setenv("COSTLENS_WINDOW_S", "soon")
    with pytest.raises(ConfigError) as caught:
        resolve_config(currency="euro")
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:s3cret@bucket/x",
        "s3://key:s3cret/with@slash@bucket",
        "https://host/x?sig=s3cret&se=1",
    ],
)
def test_credentials_of_a_url_in_the_wrong_place_are_not_echoed(
    url: str, monkeypatch: Environ
) -> None:
    """An error shows the value without user, password and query."""
    monkeypatch.setenv("COSTLENS_WINDOW_S", url)
    with pytest.raises(ConfigError) as caught:
        resolve_config()
    assert "s3cret" not in str(caught.value)
    assert url.partition(":")[0] in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        resolve_config(currency=url)
    assert "s3cret" not in str(caught.value)


def test_a_long_value_is_cut() -> None:
    """A pasted file does not fill the terminal."""
    with pytest.raises(ConfigError) as caught:
        resolve_config(run_id="x" * 5000)
    assert len(str(caught.value)) < 500


def test_a_price_is_exact() -> None:
    """Money is decimal: 2.1 is 2.1, and 0 is free, not unknown."""
    assert resolve_config(gpu_hour_price=2.1).gpu_hour_price == Decimal("2.1")
    assert resolve_config(gpu_hour_price="0").gpu_hour_price == Decimal(0)
    assert str(resolve_config(gpu_hour_price="-0").gpu_hour_price) == "0"
    assert resolve_config(gpu_hour_price="1e-12").gpu_hour_price == Decimal("0.000000000001")


def test_a_secret_in_the_place_of_a_price_is_not_repeated(monkeypatch: Environ) -> None:
    """Whatever was pasted there, the message shows its first characters only."""
    monkeypatch.setenv("COSTLENS_GPU_HOUR_PRICE", "sk-" + "0123456789" * 4)
    with pytest.raises(ConfigError, match="COSTLENS_GPU_HOUR_PRICE") as raised:
        resolve_config()
    assert "sk-0123456789" in str(raised.value)
    assert "0123456789" * 2 not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "run_dir"),
    [
        ({}, "costlens-runs"),
        ({"checkpoint_url": "s3://b/ckpt/"}, "s3://b/ckpt/.costlens"),
        ({"checkpoint_url": "s3://b/ckpt", "dir": "/data"}, "/data"),
    ],
)
def test_run_folders_go_where_the_settings_say(
    settings: dict[str, str], run_dir: str, monkeypatch: Environ
) -> None:
    """`dir`, else beside the checkpoints, else below the working directory."""
    monkeypatch.delenv("COSTLENS_DIR")
    assert resolve_config(**settings).run_dir == run_dir


def test_names_of_quality_metrics_are_a_comma_list(monkeypatch: Environ) -> None:
    """Blanks around names do not matter; a sequence is taken as it is."""
    monkeypatch.setenv("COSTLENS_QUALITY", "val*, f1 ,,loss")
    assert resolve_config().quality == ("val*", "f1", "loss")
    assert resolve_config(quality=["a", "b"]).quality == ("a", "b")


def test_a_window_is_told_in_nanoseconds() -> None:
    """The pipeline counts in nanoseconds."""
    assert resolve_config(window_s=0.25).window_ns == 250_000_000


def test_settings_cannot_be_changed_and_can_be_sent_to_another_process() -> None:
    """Frozen, equal by value, picklable and deep-copyable, as spawned ranks need them."""
    config = resolve_config(name="a", gpu_hour_price="2.50")
    with pytest.raises(ValueError, match="frozen"):
        config.name = "b"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config


def test_a_running_test_is_known(monkeypatch: Environ) -> None:
    """Faults are raised again in tests, and only there."""
    assert is_under_test()
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert not is_under_test()
