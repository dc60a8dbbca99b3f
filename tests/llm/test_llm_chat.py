"""Messages become a prompt by the model's template; answers are streamed, stopped, drawn and compared."""

from __future__ import annotations

import io
import json
import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.cli import main
from heterocompute.zoo.llm.chat.conversation import Chat
from heterocompute.zoo.llm.chat.sampling import Pieces, Sampling
from heterocompute.zoo.llm.chat.template import rendered

pytest.importorskip("jinja2")
pytestmark = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="sanitizers reserve more memory than a template may have"
)

TEMPLATE = (
    "{%- for m in messages %}\n    {{- m.role }}: {{ m['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
ASKED = [{"role": "user", "content": "hello"}]
TEXT = "user: hello</s>\nassistant:"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys = {"tokenizer.chat_template": TEMPLATE, "tokenizer.chat_template.tool": "{{ messages[0].content }}!"}
    return made.write_gguf(tmp_path_factory.mktemp("chat") / "m.gguf", keys=keys)


@pytest.fixture(scope="module")
def net(path: Path) -> Any:
    return hc.zoo.open_llm(path)


def test_messages_become_the_prompt_of_the_template(net: Any) -> None:
    ids = net.chat_ids(ASKED)
    assert ids.tolist() == net.tokenizer.encode(TEXT, special=False) and 1 in ids  # </s> is one token
    answer = net.generate(messages=ASKED, tokens=12)
    tokens = net.generate(ids, 12)
    assert answer == net._text(tokens, ids)
    assert net.chat_ids(ASKED, template_name="tool").tolist() == net.tokenizer.encode("hello!", special=False)
    own = net.chat_ids(ASKED, "{{ strftime_now('%d %b %Y') }}", now=datetime(2026, 3, 1))
    assert own.tolist() == net.tokenizer.encode("01 Mar 2026", special=False)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sweep(every=6)
def test_now_fixes_the_time_of_templates(net: Any, seed: int) -> None:
    at = datetime(2001, 1, 1) + timedelta(minutes=int(np.random.default_rng(seed).integers(1 << 24)))
    template = "{{ strftime_now('%Y-%m-%d %H:%M') }}"
    for now in (at, at.isoformat(), at.isoformat(" ", "minutes")):
        ids = net.chat_ids(ASKED, template, now=now)
        assert ids.tolist() == net.tokenizer.encode(at.strftime("%Y-%m-%d %H:%M"), special=False)
        options = {"template": template, "tokens": 4}
        assert net.generate(messages=ASKED, now=now, **options) == net._text(net.generate(ids, 4), ids)
    today = net.tokenizer.decode(net.chat_ids(ASKED, "{{ strftime_now('%Y') }}"))
    assert today.strip() == str(datetime.now().year)  # the default is the time of this machine
    with bad_argument(ValueError, "now", "value"):
        net.generate(messages=ASKED, now="yesterday")
    with bad_argument(TypeError, "now", "type"):
        net.generate(messages=ASKED, now=3)
    with bad_argument(ValueError, "now", "value"):
        net.generate("hello", now=at)


def test_a_folder_has_templates_in_several_places(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    folder = made.write_folder(tmp_path / "m")
    config = folder / "tokenizer_config.json"
    options = json.loads(config.read_text()) if config.exists() else {}
    listed = [{"name": "default", "template": "a"}, {"name": "rag", "template": "b{{ bos_token }}"}]
    config.write_text(json.dumps({**options, "chat_template": listed, "bos_token": {"content": "<s>"}}))
    net = hc.zoo.open_llm(folder)

    def text(name: str | None = None) -> str:
        return str(net.tokenizer.decode(net.chat_ids(ASKED, template_name=name)))

    assert text() == "a" and net.chat_ids(ASKED, template_name="rag")[-1] == 0
    (folder / "chat_template.jinja").write_text("c")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool.jinja").write_text("d")
    assert text() == "c" and text("tool") == "d"
    with pytest.raises(ValueError, match="no chat template 'nope', expected one of default, rag, tool"):
        text("nope")


@pytest.mark.parametrize(
    "source, words",
    [
        ("{{ 'a' * 10**10 }}", "more memory"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more than 2 s"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ 'x' * 5000000 }}", "too long"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself"),
        ("{% if %}", "TemplateSyntaxError"),
        ("x" * (1 << 20) + "y", "more than 1048576 bytes"),
    ],
)
@pytest.mark.sweep(every=3)
def test_a_hostile_template_is_refused(source: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"the template.*{words}"):
        rendered(source, {"messages": ASKED}, None, "the template")


def test_templates_have_the_environment_of_transformers() -> None:
    source = "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m|tojson }}{% endfor %}\n"
    source += "{% generation %}x{% endgeneration %}"
    assert rendered(source, {"messages": [{"é": 1}, {}]}, None, "t") == '{"é": 1}x'


def test_messages_are_checked(net: Any, path: Path, tmp_path: Path) -> None:
    for messages in ("hello", 3, [1], [{"role": "user"}], [{"role": 1, "content": ""}]):
        with pytest.raises(TypeError, match="messages"):
            net.generate(messages=messages)
    with pytest.raises(ValueError, match="messages is empty"):
        net.generate(messages=[])
    for given in ({}, {"prompt": "a", "messages": ASKED}):
        with pytest.raises(ValueError, match="prompt and messages"):
            net.generate(**given)
    with pytest.raises(ValueError, match="template is given without messages"):
        net.generate("a", template="x")
    without = hc.zoo.open_llm(made.write_gguf(tmp_path / "m.gguf"))
    with pytest.raises(ValueError, match="has no chat template.*--template FILE"):
        without.generate(messages=ASKED)
    assert without.generate(messages=ASKED, template=TEMPLATE.replace("{{ eos_token }}", ""), tokens=3)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_streamed_pieces_are_the_text(net: Any, temperature: float) -> None:
    options: dict[str, Any] = {"tokens": 40, "temperature": temperature, "seed": 4}
    for prompt in ("hello the", "Ω"):
        whole = net.generate(prompt, **options)
        pieces = list(net.generate(prompt, stream=True, **options))
        assert "".join(pieces) == whole and len(pieces) > 10
        stop = whole[9:12]
        assert net.generate(prompt, stop=[stop, "never"], **options) == whole[: whole.index(stop)]
        assert "".join(net.generate(prompt, stop=stop, stream=True, **options)) == whole[: whole.index(stop)]
    with pytest.raises(ValueError, match="stream and stop"):
        net.generate(["a", "b"], stream=True)


def test_text_is_held_while_it_may_be_a_stop(net: Any) -> None:
    pieces = Pieces(net.tokenizer, [], ["abc"])
    one = {c: net.tokenizer.encode(c, special=False)[0] for c in "abcd"}
    assert [pieces.add(one[c]) for c in "aabd"] == ["", "a", "", "abd"]
    assert [pieces.add(one[c]) for c in "abc"] == ["", "", ""] and pieces.ended and not pieces.rest()
    more = Pieces(net.tokenizer, [], ["abc"])
    assert [more.add(one[c]) for c in "ab"] == ["", ""] and more.rest() == "ab"


def test_draws_keep_what_top_k_top_p_and_min_p_say() -> None:
    rng, logits = np.random.default_rng(0), np.log(np.array([0.4, 0.3, 0.2, 0.06, 0.04], np.float32))
    cases: list[tuple[dict[str, Any], set[int]]] = [
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.75}, {0, 1, 2}),
        ({"min_p": 0.6}, {0, 1}),
        ({"top_p": 0.4}, {0}),
        ({"top_k": 9}, {0, 1, 2, 3, 4}),
        ({"top_k": 4, "top_p": 0.99, "min_p": 0.4}, {0, 1, 2}),
    ]
    for options, kept in cases:
        sampling = Sampling(1.0, **options).checked("generate")
        draws = [sampling.drawn(logits, rng) for _ in range(400)]
        assert set(draws) == kept
    counts = np.bincount([Sampling(1.0, top_k=2).drawn(logits, rng) for _ in range(4000)], minlength=5) / 4000
    assert np.abs(counts - [4 / 7, 3 / 7, 0, 0, 0]).max() < 0.04
    assert Sampling(0.0, top_k=3).drawn(logits, rng) == 0
    for options in (
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"min_p": -1.0},
        {"min_p": 2.0},
        {"temperature": -1.0},
    ):
        with pytest.raises(ValueError, match=next(iter(options))):
            Sampling(**options).checked("generate")  # type: ignore[arg-type]


def test_a_chat_computes_each_token_once_and_forgets_on_reset(net: Any) -> None:
    chat = Chat(net, kv_cache="int8", tokens=8)
    first = "".join(chat.say("hello"))
    assert first == net.generate(messages=ASKED, tokens=8, kv_cache="int8")
    assert [m["role"] for m in chat.messages] == ["user", "assistant"] and 0 < chat.tokens <= 8
    seen = chat._follow._run
    again = "".join(chat.say("the"))
    whole = [*ASKED, {"role": "assistant", "content": first}, {"role": "user", "content": "the"}]
    assert chat.messages[:-1] == whole and chat.messages[-1]["content"] == again and seen is not None
    chat.reset()
    assert chat.messages == [] and "".join(chat.say("hello")) == first
    with pytest.raises(ValueError, match="expected fewer than the context"):
        list(chat.say("x" * 400))


def test_an_answer_is_compared_with_the_stored_network(net: Any) -> None:
    chat = Chat(net, net.quantized("int3"), tokens=8, against=True)
    said = "".join(chat.say("hello"))
    assert chat.stored == net.generate(messages=ASKED, tokens=8)
    assert chat.kl is not None and chat.kl > 0 and 0 <= (chat.agreement or 0) <= 1
    ids = np.concatenate([net.chat_ids(ASKED), net.tokenizer.encode(said, special=False)])[
        : len(net.chat_ids(ASKED)) + 1
    ]
    both = [net.logits(ids[:-1], weights)[-1:] for weights in (None, net.quantized("int3"))]
    one = Chat(net, net.quantized("int3"), tokens=1, against=True)
    list(one.say("hello"))
    assert one.kl == pytest.approx(hc.kl_divergence(*both), rel=1e-4)
    told = Chat(net, net.quantized("int3"), tokens=8, against=True)
    lengths, means = [], []
    for _ in told.say("hello"):
        lengths.append(len(told.kl_of_tokens))
        means.append(told.kl)
        assert means[-1] == pytest.approx(np.mean(told.kl_of_tokens))
    assert lengths[0] < lengths[-1] and means[-1] == pytest.approx(chat.kl)  # known while the answer is written
    same = Chat(net, tokens=8, against=True)
    assert "".join(same.say("hello")) == same.stored and same.kl == 0 and same.agreement == 1


def test_the_gain_of_activations_is_measured(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chat, begun = Chat(net), list[Any]()

    def after(self: Any, ids: Any) -> None:
        begun.append(self._way.activations)
        clock[0] += 1.0 if self._way.activations is None else 0.25

    clock = [0.0]
    monkeypatch.setattr("heterocompute.zoo.llm.chat.conversation.Following.after", after)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    assert chat.gain("int8") == 4 and begun == [None, "int8"] * 2
    monkeypatch.undo()
    assert chat.gain("int8") > 0 and not chat.messages


def test_the_command_answers_standard_input(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answered(*more: str, text: str = "hello\n") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return main(["chat", str(path), "--tokens", "8", *more]), *capsys.readouterr()

    code, out, err = answered("--json", "--format", "int4", "--against", "stored")
    found = json.loads(out)
    assert code == 0 and found["messages"][0] == ASKED[0] and found["kl"] > 0 and found["tokens"] > 0
    assert np.mean(found["kl_of_tokens"]) == pytest.approx(found["kl"]) and len(found["kl_of_tokens"]) > 1
    for gain, hint in (
        (2.96, "; --activations int8 is 3.0 x as fast, measured on one token\n"),
        (1.05, "\n"),
        (None, "\n"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Chat, "gain", lambda self, activations, gain=gain: gain)
            code, out, err = answered()
        assert code == 0 and out.strip() and err.endswith(f"tokens/s{hint}")
    assert answered("--activations", "int8")[2].endswith("tokens/s\n")
    code, out, err = answered("--format", "int4", "--against", "stored")
    assert code == 0 and "stored: " in out and "nats a token" in err
    monkeypatch.setattr("heterocompute.cli.language.EVERY", 3)
    lines = answered("--format", "int4", "--against", "stored")[2].splitlines()
    told = [line.rpartition(" of ")[2] for line in lines if line.startswith("KL ") and " mean " in line]
    assert told == ["3 tokens", "6 tokens"]
    template = path.with_name("now.jinja")
    template.write_text("{{ strftime_now('%d %b %Y') }}")
    dated = [answered("--template", str(template), "--now", now, "--json")[1] for now in ("2026-03-01", "2026-03-02")]
    assert json.loads(dated[0])["text"] != json.loads(dated[1])["text"]
    code, _, err = answered("--now", "soon")
    assert code == 1 and "now is 'soon', expected a time such as '2026-07-01T12:00'" in err
    assert answered(text=" ")[0] == 2 and answered("--against", "stored")[0] == 2
    assert answered("--seed", "-1")[0] == 2
    code, _, err = answered("--top-p", "2")
    assert code == 1 and "top_p is 2.0, expected a number from 0 to 1" in err


def test_a_terminal_has_commands(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["hello", "/reset", "", "hello"])

    def asked(prompt: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    stdin = io.StringIO()
    stdin.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.setattr("builtins.input", asked)
    assert main(["chat", str(path), "--tokens", "6"]) == 0
    first, second = capsys.readouterr().out.rstrip("\n").split("\n")[-2:]
    assert first and second


def test_the_divergence_is_in_the_line_below_the_answer(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("heterocompute.cli.language.can_steer", lambda file: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    assert main(["chat", str(path), "--tokens", "8", "--format", "int3", "--against", "stored"]) == 0
    out = capsys.readouterr().out
    told = re.findall(r"\x1bD\x1b\[A\x1b7\x1b\[B\r\x1b\[2K\x1b\[2m(KL [^\x1b]*)\x1b\[0m\x1b8", out)
    assert len(told) > 1 and told[-1].startswith("KL ") and " nats, mean " in told[0]
    left = re.sub(r"\x1bD\x1b\[A\x1b7.*?\x1b8|\x1b\[J", "", out, flags=re.DOTALL)
    assert "\x1b" not in left and left.splitlines()[-1].startswith("stored: ")
