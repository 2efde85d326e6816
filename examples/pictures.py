"""A batch of pictures made small, and a contact sheet of them when all are done.

    pip install "nobroker[examples]"
    python examples/pictures.py

The pictures are made on the spot, in ./pictures. Each is one job of a batch; the job that makes the sheet is
the batch's callback: it is enqueued once, when the last picture is done, in whatever process that happens.
"""

from __future__ import annotations

from colorsys import hsv_to_rgb
from pathlib import Path

from PIL import Image, ImageDraw

from nobroker import App

app = App("./pictures-data")

FOLDER = Path("pictures")
WIDTH = 120
COLUMNS = 4


@app.job(queue="pictures")
def make_small(source: str, target: str) -> tuple[int, int]:
    """Doing it twice does no harm: the same file is written again."""
    with Image.open(source) as picture:
        picture.thumbnail((WIDTH, WIDTH))
        picture.save(target)
        return picture.size


@app.job
def contact_sheet(sources: list[str], target: str) -> tuple[int, int]:
    """All pictures in one."""
    rows = -(-len(sources) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * WIDTH, rows * WIDTH), "white")
    for number, source in enumerate(sources):
        row, column = divmod(number, COLUMNS)
        with Image.open(source) as picture:
            left, top = (WIDTH - picture.width) // 2, (WIDTH - picture.height) // 2
            sheet.paste(picture, (column * WIDTH + left, row * WIDTH + top))
    sheet.save(target)
    return sheet.size


def paint(path: Path, number: int) -> None:
    """A picture of 1600 x 1200: rings in shades of one colour."""
    picture = Image.new("RGB", (1600, 1200))
    draw = ImageDraw.Draw(picture)
    for ring in range(20, 0, -1):
        red, green, blue = (int(255 * part) for part in hsv_to_rgb(number / 12, 0.7, 1 - ring / 25))
        draw.circle((800, 600), 50 * ring, (red, green, blue))
    picture.save(path)


def main() -> None:
    """Paint twelve pictures, enqueue the batch, run it off with four threads."""
    FOLDER.mkdir(exist_ok=True)
    pictures = [FOLDER / f"{number:02}.png" for number in range(12)]
    for number, path in enumerate(pictures):
        paint(path, number)
    small = [str(path.with_suffix(".small.png")) for path in pictures]
    sheet = contact_sheet.build(small, str(FOLDER / "sheet.png"))
    with app.batch("make pictures small", on_success=sheet) as batch:
        for source, target in zip(pictures, small, strict=True):
            make_small.perform_later(str(source), target)
    print(f"{batch.total} jobs, {batch.status}, {batch.progress:.0%}")
    print(app.run(once=True, threads=4))
    print(f"{batch.total} jobs, {batch.status}, {batch.progress:.0%}")
    with Image.open(FOLDER / "sheet.png") as picture:
        print(f"{FOLDER / 'sheet.png'}: {picture.width} x {picture.height}")


if __name__ == "__main__":
    main()
