"""The jobs of a program. `nobroker run jobs` runs them."""

from datetime import date

from nobroker import App, BaseJob, Retry

app = App("./data")  # a directory; any program that imports this module can enqueue


@app.job(retry=[Retry(ConnectionError, attempts=5)])
def welcome(name: str, *, language: str = "en") -> str:
    """What it returns is kept as its result; when it raises, it is tried again."""
    return f"Hello, {name}!" if language == "en" else f"Hallo, {name}!"


@app.register
class Report(BaseJob):
    """The same as a class: with options, hooks, and the run that it is in as `self`."""

    queue = "reports"
    priority = 5

    def perform(self, account: int, day: date) -> str:
        self.progress(0.5, "half of it")
        return f"account {account} on {day:%A}, attempt {self.attempts}"
