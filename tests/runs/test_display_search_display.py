"""What a person sees of a search: on a terminal, in a log, in a narrow window."""

import io
import math
import sys
import time
from dataclasses import replace

import pytest
from rich.console import Console

from evomal.expression import Expression
from evomal.methods.candidates import Candidate, State
from evomal.runs import Generation
from evomal.runs.display import SearchDisplay, generation_line, shown_formula
from evomal.runs.finals import Final
from evomal.runs.leads import Scores
from evomal.tasks.metric_display import ShownMetric

MANY = {
    State.EVALUATED: 31, State.CACHED: 12, State.DEAD: 20, State.REJECTED: 40, State.EQUIVALENT: 3, State.DIVERGED: 2,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _an_ordinary_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clock(monkeypatch):
    """The seconds that have passed, in a list of one."""
    passed = [0.0]
    monkeypatch.setattr("evomal.runs.display.monotonic", lambda: 1000.0 + passed[0])
    return passed


def candidate(genome="square(sub(y, f))", fitness=0.5, weights=(), generation=0):
    return Candidate(
        generation=generation, index=0, origin="crossover", parents=(), genome=genome, state=State.EVALUATED,
        fitness=fitness, weights=weights,
    )  # fmt: skip


def generation(number, best=None, counts=None):
    seconds = {"optimise": 1.25, "evaluate": 2.5}
    return Generation(number, 25, {State.EVALUATED: 1} if counts is None else counts, best, seconds)


def terminal(width=80):
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=25)


def drawn(display, width=80):
    """The region's lines as they stand. Without colours, only the part of the bar that is reached is drawn."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(display)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def bar(display):
    """The bar's length in half characters, of 76 while a search of up to nine generations runs."""
    head = drawn(display)[0]
    return 2 * head.count("━") + head.count("╸")


def times(display):
    return drawn(display)[0].split("  ", 1)[1].strip(" ━╸").split("  ", 1)


def test_a_candidate_on_a_shorter_rung_does_not_replace_the_best_one(clock):
    long = replace(candidate(fitness=0.5), rungs=((1.0, 0.6), (1.0, 0.5)))
    short = replace(candidate(fitness=0.4, generation=1), rungs=((1.0, 0.4),))
    with SearchDisplay(4, steps_per_generation=100, console=terminal()) as display:
        display.on_generation(generation(0, long))
        display.on_generation(generation(1, short))
        assert drawn(display)[1] == "best          0.5"


def test_the_region_before_anything_is_known(clock):
    with SearchDisplay(4, steps_per_generation=100, console=terminal()) as display:
        assert drawn(display) == [
            "generation 1 of 4                                          0:00:00        — left",
            "best          —",
            "best formula  —",
            "candidates    —",
        ]


def test_the_region_in_the_middle_of_a_search(clock):
    with SearchDisplay(4, steps_per_generation=100, console=terminal()) as display:
        clock[0] = 83.0
        display.on_generation(generation(0, candidate(weights=(2.0, 1.0, 1.0)), MANY))
        display.on_steps("optimise", 20)
        display.on_steps("evaluate", 30)
        assert drawn(display) == [
            "generation 2 of 4  ━━━━━━━━━━━━━━                          0:01:23  0:04:09 left",
            "best          0.5",
            "best formula  4*(f - y)**2",
            "candidates    evaluated 31 · cached 12 · dead gradient 20 · rejected 40",
            "              gradient-equivalent 3 · diverged 2",
        ]


def test_the_bar_includes_the_share_of_the_running_generation_and_never_more(clock):
    display = SearchDisplay(4, steps_per_generation=100)
    assert bar(display) == 0
    display.on_steps("optimise", 50)
    assert bar(display) == int(76 * 0.5 / 4)
    display.on_steps("evaluate", 500)
    assert bar(display) == int(76 * 1 / 4)
    display.on_generation(generation(0))
    assert bar(display) == int(76 * 1 / 4)


def test_a_generation_without_steps_has_no_share(clock):
    display = SearchDisplay(4, steps_per_generation=0)
    display.on_steps("evaluate", 3)
    assert (bar(display), times(display)) == (0, ["0:00:00", "      — left"])


def test_time_left_goes_by_the_steps_of_the_first_generation_once_there_are_enough(clock):
    display = SearchDisplay(4, steps_per_generation=100)
    clock[0] = 9.0
    display.on_steps("optimise", 4)
    assert times(display) == ["0:00:09", "      — left"]
    clock[0] = 10.0
    display.on_steps("optimise", 6)
    assert times(display) == ["0:00:10", "0:06:30 left"]  # 100 s each


def test_time_left_goes_by_the_mean_of_the_generations_and_waits_for_a_slow_one(clock):
    display = SearchDisplay(4, steps_per_generation=100)
    clock[0] = 50.0
    display.on_generation(generation(0))
    clock[0] = 120.0
    display.on_generation(generation(1))
    assert times(display) == ["0:02:00", "0:02:00 left"]  # 60 s each
    clock[0] = 140.0
    assert times(display) == ["0:02:20", "0:01:40 left"]
    clock[0] = 220.0
    assert times(display) == ["0:03:40", "0:01:00 left"]


def final(own, rival):
    return Final(((candidate(), Scores(own)),), {"mse": Scores(rival)})


def test_rivals_are_trained_first_and_stay_in_the_region(clock):
    with SearchDisplay(4, steps_per_generation=100, console=terminal()) as display:
        display.on_phase("rivals", 300)
        clock[0] = 10.0
        display.on_steps("evaluate", 100)
        head = drawn(display)[0]
        assert head.startswith("training rivals")
        assert head.endswith("0:00:10  0:00:20 left")
        clock[0] = 30.0
        display.on_rivals({"mse": 0.66789, "mae": math.inf, "huber": 0.7})
        assert drawn(display)[:2] == [
            "generation 1 of 4                                          0:00:30        — left",
            "rivals        mse 0.6679, mae diverged, huber 0.7",
        ]
        clock[0] = 40.0
        display.on_steps("optimise", 50)
        assert times(display) == ["0:00:40", "0:01:10 left"]  # 20 s each: the rivals' time does not count


def test_time_left_has_the_final_at_the_speed_of_the_rivals(clock):
    with SearchDisplay(2, steps_per_generation=100, final_steps=600, console=terminal()) as display:
        display.on_phase("rivals", 300)
        clock[0] = 30.0
        display.on_steps("evaluate", 300)
        display.on_rivals({"mse": 0.7})
        clock[0] = 50.0
        display.on_generation(generation(0, candidate()))
        assert times(display) == ["0:00:50", "0:01:20 left"]  # another generation of 20 s, and 600 steps of 0.1 s
    with SearchDisplay(2, steps_per_generation=100, final_steps=600, console=terminal()) as display:
        display.on_rivals({"mse": 0.7})  # recorded before, so that their speed is not known
        clock[0] = 70.0
        display.on_generation(generation(0, candidate()))
        assert times(display) == ["0:00:20", "0:00:20 left"]


def test_the_final_has_a_time_left_of_its_own_and_stays(clock):
    with SearchDisplay(1, steps_per_generation=100, console=terminal()) as display:
        display.on_rivals({"mse": 0.7})
        clock[0] = 20.0
        display.on_generation(generation(0, candidate()))
        display.on_phase("final", 1000)
        clock[0] = 25.0
        display.on_steps("evaluate", 250)
        assert drawn(display)[0].startswith("final")
        assert times(display) == ["0:00:25", "0:00:15 left"]
        display.on_final(final((0.5, 0.6), (0.5, 0.7)))
        assert "final         best 0.55 ± 0.071 (2 fresh seeds); mse 0.6 ± 0.14: no lead over mse" in drawn(
            display, 100
        )


def test_without_a_terminal_rivals_and_final_are_a_line_each(clock):
    console = Console(file=io.StringIO(), width=40)
    with SearchDisplay(1, steps_per_generation=100, console=console) as display:
        display.on_phase("rivals", 300)
        clock[0] = 1.25
        display.on_rivals({"mse": 0.7, "mae": 0.8})
        display.on_generation(generation(0, candidate()))
        display.on_phase("final", 300)
        clock[0] = 3.25
        display.on_final(final((0.5, 0.5), (0.7, 0.7)))
    first, _, last = console.file.getvalue().splitlines()
    assert first == "rivals: mse 0.7, mae 0.8 (1.2 s)"
    assert last == "final: best 0.5 ± 0 (2 fresh seeds); mse 0.7 ± 0: beats mse by 0.2 ± 0 on validation (2.0 s)"


def test_what_was_recorded_before_is_no_line(clock):
    console = Console(file=io.StringIO(), width=80)
    with SearchDisplay(1, steps_per_generation=100, done=1, console=console) as display:
        display.on_rivals({"mse": 0.7})
        display.on_final(final((0.5, 0.5), (0.7, 0.7)))
    assert console.file.getvalue() == ""


def test_hours_are_counted_beyond_a_day(clock):
    display = SearchDisplay(4, steps_per_generation=100)
    clock[0] = 30 * 3600.0 + 61
    assert times(display)[0] == "30:01:01"


def test_a_resumed_search_counts_the_time_of_what_is_computed_now(clock):
    display = SearchDisplay(10, steps_per_generation=100, done=5)
    assert drawn(display)[0].startswith("generation 6 of 10 ")
    assert times(display)[1].strip() == "— left"
    clock[0] = 30.0
    display.on_generation(generation(5))
    assert drawn(display)[0].startswith("generation 7 of 10 ")
    assert times(display) == ["0:00:30", "0:02:00 left"]


def test_generations_recorded_before_count_but_take_no_time_and_no_line(clock):
    console = Console(file=io.StringIO(), width=80)
    with SearchDisplay(10, steps_per_generation=100, done=1, console=console) as display:
        clock[0] = 5.0
        display.on_generation(generation(0, candidate(fitness=0.25), {State.CACHED: 2}))
        assert drawn(display)[0].startswith("generation 2 of 10 ")
        assert times(display)[1].strip() == "— left"
        assert console.file.getvalue() == ""
        display.on_generation(generation(1, candidate(fitness=0.75), {State.CACHED: 3}))
    assert drawn(display)[1] == "best          0.25"
    assert drawn(display)[3] == "candidates    cached 5"


def test_the_best_so_far_is_kept_and_its_formula_made_once(clock, monkeypatch):
    made = []
    formula = Expression.formula
    monkeypatch.setattr(Expression, "formula", lambda self, weights: made.append(str(self)) or formula(self, weights))
    with SearchDisplay(5, steps_per_generation=1, console=terminal()) as display:
        display.on_generation(generation(0))
        display.on_generation(generation(1, candidate("abs(sub(y, f))", 0.5)))
        display.on_generation(generation(2, candidate("square(sub(y, f))", 0.75)))
        display.on_generation(generation(3, candidate("sqrt(sub(y, f))", 0.5)))
        assert drawn(display)[1:3] == ["best          0.5", "best formula  Abs(f - y)"]
        drawn(display)
        assert made == ["abs(sub(y, f))"]
        display.on_generation(generation(4, candidate("square(sub(y, f))", 0.25)))
        assert drawn(display)[1:3] == ["best          0.25", "best formula  (f - y)**2"]


def told_of_everything(width):
    display = SearchDisplay(10, steps_per_generation=2, console=terminal(width))
    with display:
        numbers = "[0.25,-1.5,0.75,2.25,-0.5,1.25,0.125,-3.5,0.0625,1.75,-2.5,0.375]"
        display.on_generation(generation(0, candidate(numbers, 0.123456), dict.fromkeys(State, 1000)))
        display.say("a sentence that is longer than some terminals are wide")
        return drawn(display, width)


@pytest.mark.parametrize("width", [1, 5, 20, 40, 59, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(clock, width):
    assert max(map(len, told_of_everything(width))) <= width


def test_the_last_line_leaves_room_for_what_a_terminal_writes_at_ctrl_c(clock):
    display = SearchDisplay(4, steps_per_generation=1)
    display.on_generation(generation(0, None, MANY))
    assert drawn(display, 73)[3] == "candidates    evaluated 31 · cached 12 · dead gradient 20 · rejected 40"
    assert drawn(display, 72)[3] == "candidates    evaluated 31 · cached 12 · dead gradient 20"


def test_a_narrow_terminal_has_the_times_below_the_bar_and_more_lines_of_counts(clock):
    assert told_of_everything(40) == [
        "generation 2 of 10   ━╸",
        "0:00:00  0:00:00 left",
        "best          0.1235",
        "best formula  [0.25,-1.5,0.75,2.25,-0.5…",
        "candidates    evaluated 1000",
        "              cached 1000",
        "              inadmissible 1000",
        "              dead gradient 1000",
        "              rejected 1000",
        "              gradient-equivalent 1000",
        "              passed over 1000",
        "              diverged 1000",
        "              failed 1000",
        "a sentence that is longer than some ter…",
    ]


@pytest.mark.parametrize(
    ("genome", "weights", "shown"),
    [
        ("square(sub(y, f))", (), "(f - y)**2"),
        ("square(sub(y, f))", (0.5, 1.0, 3.0), "(1.5*f - y/2)**2"),
        ("square(sub(y, f))", (0.5,), "square(sub(y, f))"),
        ("square(sub(y, f))", (float("nan"), 1.0, 1.0), "square(nan*sub(y, f))"),
        ("[0.5,-1.25e-07]", (), "[0.5,-1.25e-07]"),
        ("focal", (), "focal"),
        ("[bold red]f[/bold red] :smile:", (), "[bold red]f[/bold red] :smile:"),
        ("[/]", (), "[/]"),
        ("a\x1b[31mb\nc", (), r"a\x1b[31mb\nc"),
        ("x" * 100_000, (), "x" * 1000),
    ],
)
def test_formulas_of_every_kind_of_genome(clock, genome, weights, shown):
    assert shown_formula(candidate(genome, weights=weights)) == shown
    with SearchDisplay(2, steps_per_generation=1, console=terminal()) as display:
        display.on_generation(generation(0, candidate(genome, weights=weights)))
        cut = shown if len(shown) <= 66 else shown[:65] + "…"
        assert drawn(display)[2] == f"best formula  {cut}"


def test_a_tree_that_kept_sympy_busy_for_minutes_is_shown_at_once():
    genome = "log(aq(tanh(tanh(aq(y, tanh(y)))), log(aq(y, tanh(aq(log(-1), aq(aq(-1, tanh(f)), log(log(log(y))))))))))"
    began = time.perf_counter()
    assert shown_formula(candidate(genome)).startswith("log(1.0e-7 + Abs(tanh(tanh(y/sqrt(tanh(y)**2 + 1))))/sqrt(")
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("error", [RecursionError, ZeroDivisionError, NotImplementedError, TypeError])
def test_a_formula_that_cannot_be_made_is_the_genome(monkeypatch, error):
    def failing(*_):
        raise error

    monkeypatch.setattr(Expression, "formula", failing)
    assert shown_formula(candidate("abs(sub(y, f))")) == "abs(sub(y, f))"


def test_a_generation_as_a_line():
    counts = {State.EVALUATED: 3, State.DEAD: 2}
    line = "generation 2 of 10: best 0.1235 (3 evaluated, 2 dead gradient; 3.8 s)"
    assert generation_line(generation(1, candidate(fitness=0.123456), counts), 10, ShownMetric("mse")) == line
    line = "generation 3 of 10: best nothing yet (2 rejected; 3.8 s)"
    assert generation_line(generation(2, None, {State.REJECTED: 2}), 10, ShownMetric("mse")) == line


def test_values_are_those_of_the_metric_and_not_costs():
    line = generation_line(generation(0, candidate(fitness=-0.98765), {}), 2, ShownMetric("auc", True))
    assert "best 0.9877 (" in line
    display = SearchDisplay(4, steps_per_generation=100, metric=ShownMetric("auc", True))
    display.on_rivals({"ce": -0.5})
    display.on_generation(generation(0, candidate(fitness=-0.98765)))
    assert drawn(display)[1:3] == ["rivals        ce 0.5", "best          auc 0.9877"]


def test_without_a_terminal_there_is_a_line_a_generation_on_standard_error(capsys):
    with SearchDisplay(2, steps_per_generation=10) as display:
        display.on_steps("optimise", 5)
        assert capsys.readouterr() == ("", "")
        display.on_generation(generation(0, candidate(), MANY))
        line = generation_line(generation(0, candidate(), MANY), 2, ShownMetric())
        assert len(line) > 80
        assert capsys.readouterr() == ("", f"{line}\n")
        display.say("[a] sentence")
        display.on_generation(generation(1))
    second = "generation 2 of 2: best nothing yet (1 evaluated; 3.8 s)"
    assert capsys.readouterr() == ("", f"[a] sentence\n{second}\n")


def test_a_terminal_that_cannot_go_back_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    console = terminal()
    with SearchDisplay(1, steps_per_generation=10, console=console) as display:
        display.on_generation(generation(0))
    assert console.file.getvalue() == "generation 1 of 1: best nothing yet (1 evaluated; 3.8 s)\n"


def test_what_stays_on_a_terminal_is_the_final_state(clock):
    console = terminal()
    with SearchDisplay(2, steps_per_generation=10, console=console) as display:
        display.on_generation(generation(0, candidate()))
        display.on_generation(generation(1, candidate(fitness=0.25)))
        clock[0] = 7.0
    assert drawn(display) == [
        "2 of 2 generations  " + "━" * 51 + "  0:00:07",
        "best          0.25",
        "best formula  (f - y)**2",
        "candidates    evaluated 2",
    ]
    written = console.file.getvalue()
    assert written.startswith("\x1b[?25l")  # the cursor is hidden while the region is drawn
    assert written.endswith("evaluated 2\n\x1b[?25h")
    assert "generation 1 of 2: best" not in written


def test_a_generation_that_was_broken_off_does_not_stay(clock):
    console = terminal()
    streams = sys.stdout, sys.stderr
    display = SearchDisplay(2, steps_per_generation=10, console=console)

    def broken_off():
        with display:
            display.on_generation(generation(0, candidate()))
            display.on_steps("optimise", 9)
            assert bar(display) == int(76 * 1.9 / 2)
            display.say("stopping")
            assert drawn(display)[-1] == "stopping"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert bar(display) == 51
    assert drawn(display)[0].startswith("1 of 2 generations  ")
    assert drawn(display)[-1] == "candidates    evaluated 1"
    assert console.file.getvalue().endswith("evaluated 1\n\x1b[?25h")
    assert (sys.stdout, sys.stderr) == streams


def test_standard_output_that_goes_to_a_file_stays_there(capsys):
    console = terminal()
    with SearchDisplay(2, steps_per_generation=10, console=console):
        sys.stdout.write("a model's own words\n")
        sys.stderr.write("a warning\n")
    assert capsys.readouterr() == ("a model's own words\n", "")
    written = console.file.getvalue()
    assert "model's own words" not in written
    assert "a warning\n" in written


def test_the_region_is_drawn_again_by_itself_but_calmly():
    console = terminal()
    begin = time.monotonic()
    with SearchDisplay(4, steps_per_generation=10, console=console):
        while (frames := console.file.getvalue().count("generation 1 of 4")) < 4 and time.monotonic() < begin + 30:
            time.sleep(0.01)
        assert frames >= 4
        assert time.monotonic() - begin >= (frames - 1) / 8
