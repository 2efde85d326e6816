"""The clocks: the machine's, and the one that tests move."""

from __future__ import annotations

from nobroker.clock import ManualClock, SystemClock


class TestSystemClock:
    def test_the_boot_clock_never_steps_back(self) -> None:
        clock = SystemClock()
        seen = [clock.boot_us() for _ in range(1000)]
        assert seen == sorted(seen)
        assert all(type(value) is int and value > 0 for value in seen)

    def test_the_wall_clock_is_this_century(self) -> None:
        assert 1_700_000_000 * 10**6 < SystemClock().wall_us() < 5_000_000_000 * 10**6

    def test_the_boot_is_the_same_for_all(self) -> None:
        assert SystemClock().boot_id() == SystemClock().boot_id() != ""
        assert SystemClock().namespace() == SystemClock().namespace()

    def test_suspended_time_is_not_negative(self) -> None:
        assert SystemClock().suspended_us() >= 0


class TestManualClock:
    def test_stands_until_it_is_moved(self) -> None:
        clock = ManualClock(100.5)
        assert clock.wall_us() == clock.wall_us() == 100_500_000
        boot = clock.boot_us()
        clock.advance(1.25)
        assert (clock.wall_us(), clock.boot_us()) == (101_750_000, boot + 1_250_000)

    def test_a_step_of_the_wall_clock_is_no_time(self) -> None:
        clock = ManualClock(100)
        boot = clock.boot_us()
        clock.step_wall(-50)
        assert (clock.wall_us(), clock.boot_us()) == (50_000_000, boot)

    def test_suspend(self) -> None:
        clock = ManualClock(100)
        boot = clock.boot_us()
        clock.suspend(10)
        assert (clock.wall_us(), clock.boot_us(), clock.suspended_us()) == (
            110_000_000,
            boot + 10_000_000,
            10_000_000,
        )

    def test_reboot(self) -> None:
        clock = ManualClock(100)
        clock.suspend(1)
        before = clock.boot_id()
        clock.reboot(5)
        assert clock.boot_id() != before
        assert clock.wall_us() == 106_000_000
        assert clock.suspended_us() == 0
        assert clock.boot_us() < 10_000_000
