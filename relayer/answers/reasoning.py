"""A model's text without what it thought aloud, and without the marks of its chat template.

It does not own reasoning that a server reports in a member of its own (`completion.py`).

- Reasoning is never shown: where its end is missing, everything after its beginning goes; where its
  beginning is missing, everything before its end goes.
- Time is linear in the text.
"""

import re
from typing import Final

_THOUGHT: Final = (
    "(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflections?|scratch[_-]?pad|analysis|deliberation"
    "|monologue|chain[_-]of[_-]thought|cot)(?:[_-][a-z]{1,16})?"
)
# <think> </think> <ant:thinking> <seed:think> ◁think▷ <|begin_of_thought|> <|END_THINKING|>
# <｜end▁of▁thinking｜> [THINK], and Gemma's <|channel>thought … <channel|>
_MARK: Final = re.compile(
    r"[<◁](?=[/|｜a-z])[|｜]?"
    r"(?P<end>/|end[_▁](?:of[_▁])?)?(?:(?:begin|start)[_▁](?:of[_▁])?)?"
    rf"(?:[a-z]{{1,16}}[:_-])?(?:ant)?{_THOUGHT}(?:\s[^<>]{{0,100}})?[/|｜]?[>▷]"
    r"|(?-i:\[(?P<bracket_end>/)?(?:THINK(?:ING)?|THOUGHTS?|REASONING)\])"
    r"|<\|channel>\s{0,4}\w{1,16}|(?P<channel_end><channel\|>)",
    re.IGNORECASE,
)
_ANSWER: Final = re.compile(
    r"<\|?(?P<end>/|end_(?:of_)?)?(?:begin_(?:of_)?|start_(?:of_)?)?"
    r"(?:answer|response|output|final(?:_answer)?|solution)\|?>",
    re.IGNORECASE,
)

# OpenAI's harmony: <|channel|>NAME …<|message|>TEXT<|end|>
_CHANNEL: Final = "<|channel|>"
_CHANNEL_HEAD: Final = re.compile(r"\s*(\w{1,16})([^<{\[]{0,200})")
_CONSTRAINED: Final = re.compile(r"\s*<\|constrain\|>\s*\w{0,16}\s*")
_MESSAGE: Final = "<|message|>"
# A server that drops the template's tokens runs the names of its channels into the text.
_FLAT_ANALYSIS: Final = re.compile(r"(?:analysis|commentary)(?=[A-Z\"'(])")
_FLAT_FINAL: Final = "assistantfinal"

_TURN_BEGINS: Final = (
    r"(?:<\|im_start\|>|<\|start\|>|<\|turn>|<start_of_turn>|<\|start_header_id\|>)"
    r"[ \t]{0,8}(?:\w{1,16})?[ \t]{0,8}(?:<\|end_header_id\|>|<\|message\|>)?"
    r"|<\|(?:assistant|bot|user|system)\|>|\[/?INST\]"
)
_TURN_ENDS: Final = (
    r"<\|(?:im_end|eot_id|eom_id|end|return|call|endoftext|end_of_text|end_of_turn|eos)\|>"
    r"|<end_of_turn>|<turn\|>|<eos>|</s>|<｜end▁of▁sentence｜>"
)
_HEADS: Final = re.compile(
    rf"(?:\s{{0,64}}(?:<bos>|<s>|<\|begin_of_text\|>|{_TURN_BEGINS}|{_TURN_ENDS}))+\s*",
    re.IGNORECASE,
)
_NEXT_TURN: Final = re.compile(rf"{_TURN_BEGINS}|{_TURN_ENDS}")

# Reasoning that is marked by a heading in words.
_LABELLED: Final = re.compile(
    r"[\s#*_>-]{0,8}(?:here(?: is|'s) (?:my|the) )?"
    r"(?:thought process|thinking(?: process)?|thoughts?|reasoning|chain of thought|scratchpad"
    r"|inner monologue)[*_]{0,3}[ \t]{0,4}:",
    re.IGNORECASE,
)
_ANSWER_LABEL: Final = re.compile(
    r"^[ \t#*_>-]{0,8}(?:here(?: is|'s) (?:my|the) )?(?:final )?(?:answer|response|output)"
    r"[*_]{0,3}[ \t]{0,4}:[*_]{0,3}",
    re.IGNORECASE | re.MULTILINE,
)


def strip_reasoning(text: str) -> str:
    """Return what a model says in `text`, without its reasoning; empty if there is nothing else."""
    text = text.removeprefix("\ufeff").strip()
    text = _without_channels(text)
    text = _without_blocks(text)
    text = _without_labelled(text)
    return _one_turn(_inside_answer(text)).strip()


def _without_channels(text: str) -> str:
    if _CHANNEL not in text:
        if _FLAT_ANALYSIS.match(text):
            return text.rpartition(_FLAT_FINAL)[2] if _FLAT_FINAL in text else ""
        return text
    chosen = ""
    for part in text.split(_CHANNEL)[1:]:
        head = _CHANNEL_HEAD.match(part)
        if head is None:
            continue
        name, rest = head[1].casefold(), part[head.end() :]
        if name == "final" or (" to=" in head[2] and not chosen):
            chosen = _strip_reasoning(rest)
    return chosen


def _strip_reasoning(part: str) -> str:
    constrained = _CONSTRAINED.match(part)
    part = part[constrained.end() :] if constrained else part
    return part.lstrip().removeprefix(_MESSAGE)


def _without_blocks(text: str) -> str:
    kept, at, is_thought = list[str](), 0, False
    for mark in _MARK.finditer(text):
        if mark["end"] or mark["bracket_end"] or mark["channel_end"]:
            # An end without a beginning: all so far was reasoning.
            kept = kept if is_thought else []
            is_thought, at = False, mark.end()
        elif not is_thought:
            kept.append(text[at : mark.start()])
            is_thought = not mark.group().endswith("/>")
            at = mark.end()
    if not is_thought:
        kept.append(text[at:])
    return "\n".join(part for part in kept if part.strip()) if len(kept) > 1 else "".join(kept)


def _without_labelled(text: str) -> str:
    if not _LABELLED.match(text):
        return text
    ends = [match.end() for match in _ANSWER_LABEL.finditer(text)]
    return text[ends[-1] :] if ends else ""


def _inside_answer(text: str) -> str:
    """Return what stands in the last `<answer>`, where a model marks its answer so."""
    begin, end = None, len(text)
    for mark in _ANSWER.finditer(text):
        if not mark["end"]:
            begin, end = mark.end(), len(text)
        elif begin is not None and end == len(text):
            end = mark.start()
    return text if begin is None else text[begin:end]


def _one_turn(text: str) -> str:
    """Return the model's own turn; a model that runs on writes the next ones as well."""
    heads = _HEADS.match(text)
    begin = heads.end() if heads else 0
    end = _NEXT_TURN.search(text, begin)
    return text[begin : end.start() if end else len(text)]
