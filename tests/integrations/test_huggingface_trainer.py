"""Losses in the real Trainer, with tiny models that are not downloaded: values, gradients and logs."""

import pytest
import torch

from evomal.integrations.huggingface import compute_loss_func, progress_callback
from evomal.losses import CrossEntropyLoss, ExpressionLoss, FocalLoss
from tests.integrations import library

transformers = library("transformers")
library("accelerate")

ROWS, LENGTH, WORDS = 32, 6, 11


def language_model():
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_embd": 8, "n_head": 1, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=WORDS, n_positions=LENGTH, **sizes, **ends))


def classifier(kind):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, num_labels=3,
        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return getattr(transformers, f"BertFor{kind}Classification")(config)


def texts(labels):
    """Rows of tokens; sequences and so the batches have different numbers of labels that count."""
    words = torch.randint(WORDS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    if labels in ("words", "next words"):
        given = words.masked_fill(torch.arange(LENGTH) > 1 + torch.arange(ROWS).unsqueeze(1) % 5, -100)
        # For GPT-2, Trainer counts the first labels, too, which nothing predicts.
        given[:, 0] = words[:, 0] if labels == "words" else -100
    else:
        given = words % 3 if labels == "tokens" else words[:, 0] % 3
    return [{"input_ids": row, "labels": label} for row, label in zip(words, given, strict=True)]


def trained(folder, model, data, function=None, accumulation=1, callbacks=None):
    """The model after two steps of 16 rows each, and the losses that were logged."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=16 // accumulation, use_cpu=True, report_to=[], max_steps=2,
        gradient_accumulation_steps=accumulation, logging_steps=1, learning_rate=0.1, lr_scheduler_type="constant",
        optim="sgd", max_grad_norm=0.0, save_strategy="no", disable_tqdm=True, train_sampling_strategy="sequential",
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, arguments, train_dataset=data, compute_loss_func=function, callbacks=callbacks
    )
    trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach(), torch.tensor(logged)


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("labels", ["words", "tokens", "rows"])
def test_cross_entropy_trains_as_the_model_s_own_loss(tmp_path, labels, accumulation):
    def make():
        return language_model() if labels == "words" else classifier("Token" if labels == "tokens" else "Sequence")

    # Not accumulated: with accumulation, Transformers' own losses of classifiers are as many times too large.
    own, own_losses = trained(tmp_path, make(), texts(labels))
    function = compute_loss_func(CrossEntropyLoss())
    found, losses = trained(tmp_path, make(), texts(labels), function, accumulation)
    torch.testing.assert_close(losses, own_losses, rtol=1e-4, atol=2e-4)  # Trainer logs four digits
    torch.testing.assert_close(found, own)


@pytest.mark.parametrize(
    "loss", [FocalLoss(2.0), ExpressionLoss("abs(log(mul(y, f)))")], ids=lambda loss: type(loss).__name__
)
@pytest.mark.parametrize("labels", ["next words", "rows"])
def test_four_accumulated_batches_are_one_batch_and_the_obvious_wrapper_is_wrong(tmp_path, loss, labels):
    def make():
        return language_model() if labels == "next words" else classifier("Sequence")

    def obvious(outputs, labels, num_items_in_batch=None):
        logits = outputs.logits
        if logits.dim() == 3:
            logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return loss(logits, labels)

    data, start = texts(labels), torch.nn.utils.parameters_to_vector(make().parameters()).detach()
    whole, whole_losses = trained(tmp_path, make(), data, obvious)  # without accumulation it is right
    parts, losses = trained(tmp_path, make(), data, compute_loss_func(loss), 4)
    torch.testing.assert_close(losses, whole_losses, rtol=1e-4, atol=2e-4)
    torch.testing.assert_close(parts, whole)
    wrong, wrong_losses = trained(tmp_path, make(), data, obvious, 4)
    assert (wrong_losses[0] / whole_losses[0]).item() == pytest.approx(4, rel=0.1)
    assert ((wrong - start).norm() / (whole - start).norm()).item() > 2


def test_evaluation_is_the_mean_over_the_labels(tmp_path):
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_eval_batch_size=ROWS, use_cpu=True, report_to=[], disable_tqdm=True
    )
    model, data = language_model(), texts("next words")
    trainer = transformers.Trainer(model, arguments, compute_loss_func=compute_loss_func(CrossEntropyLoss()))
    stacked = {name: torch.stack([row[name] for row in data]) for name in data[0]}
    with torch.no_grad():
        expected = model(**stacked).loss.item()
    assert trainer.evaluate(data)["eval_loss"] == pytest.approx(expected, rel=1e-3)


def test_a_loss_with_t_is_told_the_progress(tmp_path):
    loss, seen = ExpressionLoss("mul(y, add(t, log(f)))"), []
    compute = compute_loss_func(loss)

    def function(*arguments, **named):
        seen.append(loss.progress)
        return compute(*arguments, **named)

    trained(tmp_path, classifier("Sequence"), texts("rows"), function, callbacks=[progress_callback(loss)])
    assert seen == [0.0, 0.5]
