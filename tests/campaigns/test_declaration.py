"""Files of campaigns: what they say, and one sentence for what is wrong with them."""

from pathlib import Path

import pytest

from evomal.campaigns import read_campaign
from evomal.errors import InputError

ROOT = Path(__file__).parents[2]
CAMPAIGNS = sorted((ROOT / "campaigns").glob("*.toml"))
TASK = '[[tasks]]\nname = "a"\ntask = "diabetes"\n'


def written(folder, text):
    path = folder / "mine.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", CAMPAIGNS, ids=lambda path: path.stem)
def test_the_campaigns_of_the_repository_can_be_read(path):
    campaign = read_campaign(path)
    assert campaign.name == path.stem
    assert campaign.about
    for spec in campaign.python_files:
        file, _, function = spec.rpartition(":")
        assert f"def {function}(" in (path.parent / file).read_text()


def test_there_is_one_campaign_for_each_table():
    names = [
        "calibration", "ceilings", "cifar10-thorough", "cifar10", "cifar100", "fresh", "imbalance", "learned", "noise",
        "options", "outliers", "paper", "quick", "rows", "scale", "searches", "smoothing", "svhn", "transfer",
        "unseen", "weight-decay",
    ]  # fmt: skip
    assert [path.stem for path in CAMPAIGNS] == names


def test_a_task_takes_what_it_leaves_out_from_the_campaign(tmp_path):
    text = 'title = "t"\nseeds = 7\nmethods = ["evomal"]\n[settings]\npopulation = 9\ngenerations = 3\n'
    other = '[[tasks]]\nname = "b"\ntask = "diabetes"\nseeds = 2\nsettings = { generations = 4 }\n'
    first, second = read_campaign(written(tmp_path, text + TASK + other)).tasks
    assert (first.seeds, first.methods, first.settings) == (7, ("evomal",), {"population": 9, "generations": 3})
    assert (second.seeds, second.methods, second.settings) == (2, ("evomal",), {"population": 9, "generations": 4})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("title = 1\n" + TASK, "title must be a string but got 1"),
        ('title = "t"', "tasks is missing"),
        ('title = "t"\ntasks = []', "tasks must have at least 1 entry"),
        ('title = "t"\nseds = 3\n' + TASK, "there is no key 'seds': did you mean 'seeds'?"),
        ('title = "t"\nseeds = 0\n' + TASK, "seeds must be at least 1 but got 0"),
        ('title = "t"\nseeds = "5"\n' + TASK, "seeds must be a whole number but got '5'"),
        ('title = "t"\nmethods = ["evo"]\n' + TASK, "methods: there is no method named 'evo': did you mean 'evomal'?"),
        ('title = "t"\nlosses = ["mae", "mae"]\n' + TASK, "losses: names must be different but 'mae' is given twice"),
        ('title = "t"\npresets = ["quik"]\n' + TASK, "presets: there is no preset named 'quik': did you mean 'quick'?"),
        (
            'title = "t"\n[settings]\ngenerations = -3\n' + TASK,
            "tasks.0: generations must be at least 1 but got -3",
        ),
        (
            'title = "t"\n[settings]\ngeneration = 3\n' + TASK,
            "tasks.0: there is no setting named 'generation': did you mean 'generations'?",
        ),
        ('title = "t"\n' + TASK + "outliers = 3.0\n", "tasks.0: outliers must be a share of 0 to 1 but got 3.0"),
        ('title = "t"\n' + TASK.replace("diabetes", "diabetis"), "tasks.0: there is no task named 'diabetis'"),
        ('title = "t"\n' + TASK.replace('"a"', '"A b"'), "tasks.0.name: name must be 1 to 60 lower-case letters"),
        ('title = "t"\n' + TASK + TASK, "tasks must have different names but 'a' is the name of two"),
        ('title = "t"\n' + TASK + 'learned_on = ["b"]\n', "a: learned_on: there is no task 'b'"),
        ('title = "t"\n' + TASK + 'learned_on = ["a"]\n', "a: learned_on must name other tasks but names 'a' itself"),
        ('title = "t"\npresets = []\n' + TASK, "presets must have at least 1 entry"),
        ('title = "t"\n' + TASK + "presets = []\n", "tasks.0.presets must have at least 1 entry"),
        ('title = "t"\nlosses = ["hubber"]\n' + TASK, "losses: there is no loss named 'hubber': did you mean 'huber'?"),
        ('title = "t"\nlosses = ["huber:d=1"]\n' + TASK, "losses: huber has no option 'd'"),
        ('title = "t"\nlosses = ["mse+stopping"]\n' + TASK, "losses: there is no procedure named 'stopping'"),
        (
            'title = "t"\nlosses = ["mse+temperature"]\n' + TASK,
            "tasks.0: the task is regression, but temperature is for",
        ),
        ('title = "t"\nlosses = ["ce"]\n' + TASK, "tasks.0: the task is regression, but ce is for classification"),
        ('title = "t"\n' + TASK + 'metric = "nope"\n', "tasks.0: metric must be one of mse, mae, r2"),
        ('title = "t"\n' + TASK + 'metric = "error_rate"\n', "tasks.0: metric must be one of mse, mae, r2"),
        ('title = "t"\n' + TASK + 'model = "mpl"\n', "tasks.0: there is no model named 'mpl'"),
        ('title = "t"\n' + TASK + 'model = "lenet5"\n', "tasks.0: lenet5 takes images"),
        ('title = "t"\n' + TASK + "label_noise = 0.4\n", "tasks.0: label noise is defined for classes only"),
        ('title = "t"\n' + TASK + "imbalance = 0.4\n", "tasks.0: imbalance is defined for classes only"),
        (
            'title = "t"\n' + TASK.replace("diabetes", "mnist") + "outliers = 0.4\n",
            "tasks.0: outliers are defined for regression only",
        ),
        (
            'title = "t"\ntune_lr = 0\ntune_decay = true\n' + TASK,
            "tasks.0: tune_decay needs tune_lr to be at least 1 but got 0",
        ),
        (
            'title = "t"\ntune_decay = true\n[figures]\nkinds = ["filters", "landscapes"]\n' + TASK,
            "tasks.0: tune_decay cannot be combined with landscapes, which trains with the task's own decay",
        ),
        (f'title = "{"t" * 2_001}"\n' + TASK, "title must have at most 2,000 characters but has 2,001"),
        ("title = ", "is not a TOML file"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path, text, sentence):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_campaign(path)
    assert str(caught.value).startswith(f"{path}: {sentence}")


def test_some_tasks_can_be_chosen_with_those_they_learn_on(tmp_path):
    text = "".join(f'[[tasks]]\nname = "{name}"\ntask = "diabetes"\n' for name in "abc")
    campaign = read_campaign(written(tmp_path, f'title = "t"\n{text}learned_on = ["a"]\n'))
    assert campaign.chosen(["c"]) == {"a", "c"}
    assert campaign.chosen(None) == {"a", "b", "c"}
    with pytest.raises(InputError, match="there is no task named 'd'"):
        campaign.chosen(["d"])
    with pytest.raises(InputError, match="at least one task must be named but got none"):
        campaign.chosen([])


def test_a_campaign_can_be_reduced_to_some_presets(tmp_path):
    text = 'title = "t"\npresets = ["quick", "thorough"]\nmethods = ["evomal", "random"]\nsearch_seeds = 4\n'
    other = '[[tasks]]\nname = "b"\ntask = "diabetes"\npresets = ["paper"]\n'
    whole = read_campaign(written(tmp_path, text + TASK + other))
    first, second = whole.reduced(presets=["thorough"], methods=["evomal"], search_seeds=2).tasks
    assert (first.presets, first.methods, first.search_seeds) == (("thorough",), ("evomal",), 2)
    assert (second.presets, second.methods) == (("paper",), ())  # known losses only
    assert whole.reduced() == whole
    with pytest.raises(InputError, match="there is no preset of this campaign named 'thoroug': did you mean 'thoro"):
        whole.reduced(presets=["thoroug"])
