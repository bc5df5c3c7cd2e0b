"""Claims and tests in one run: the plugin of triu collects ``spec/*.toml``."""

pytest_plugins = ["triu.conformance.plugin"]
