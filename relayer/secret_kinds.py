"""The shapes of secrets: a table of kinds, and the checks that a shape alone cannot make.

Not here: replacing them (`redact.py`), private keys, which span lines (`redact.py`).

- A shape starts at a boundary or at fixed words, and repeats only single characters: nothing that
  repeats stands inside something that repeats. So the time is linear in the text.
- The more special shape comes first: a token in an `Authorization` header keeps its own kind.
- A secret stands in a group that is named for its kind, with `_` for `-`.
- What only its label tells from a hash or an identifier (a seed of 64 hex digits, a secret of
  base64) is a secret beside that label and left alone without it. A password that people chose is
  known inside a URL or connection string only: nothing about its shape tells it from a word.

Source: tests/data/redaction/README.md lists each issuer's shape.
"""

import base64
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Final

# A token starts where no letter, digit or dash of a longer word stands before it, but an escaped
# line end, a percent escape or Telegram's `bot` may. Inside one run of token characters only one
# position can be its start, which keeps the scan linear.
_START: Final = r"(?:(?<![\w-])|(?<=\\[nrt])|(?<=%[0-9A-F]{2})|(?<=/bot))"
_END: Final = r"(?![\w-])"
_AS_LONG: Final = r"\w[\w.:/+=~-]{14}|[\w~.]{3}[0-9]Q~"  # as any token is, at the least

_TOKENS: Final = (
    ("aws-key", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}" + _END),
    ("github-token", r"gh[opsur]_[A-Za-z0-9]{36,}|github_pat_\w{22,}"),
    (
        "gitlab-token",
        r"gl(?:pat|dt|rt|ptt|cbt|ft|soat|agent|imt|ffct)-[\w-]{20,}(?:\.\w{2}\.\w{7,})?",
    ),
    (
        "slack-token",
        r"(?:xox[abeoprs]|xoxe\.xox[bp]|xapp)-(?=[A-Za-z-]{0,99}[0-9])[A-Za-z0-9-]{10,}",
    ),
    ("stripe-key", r"[sr]k_(?:live|test|prod)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{24,}={0,2}"),
    ("google-key", r"AIza[\w-]{35}" + _END),
    ("google-oauth", rf"GOCSPX-[\w-]{{28}}{_END}|ya29\.[\w-]{{40,}}|1//0[\w-]{{40,}}"),
    # The digit tells a key from a hyphenated name.
    (
        "api-key",
        rf"sk-(?:proj|svcacct|admin|ant|or)-(?=[A-Za-z_-]{{0,200}}[0-9])[\w-]{{20,}}"
        rf"|(?:sk-(?=[A-Za-z]{{0,200}}[0-9])[A-Za-z0-9]{{20,}}|gsk_[A-Za-z0-9]{{52}}"
        rf"|xai-[A-Za-z0-9]{{80}}|pplx-[A-Za-z0-9]{{48}}|r8_[A-Za-z0-9]{{37}}){_END}",
    ),
    ("huggingface-token", r"hf_[A-Za-z0-9]{30,}"),
    ("npm-token", r"npm_[A-Za-z0-9]{36}" + _END),
    ("pypi-token", r"pypi-AgE[\w-]{50,}"),
    ("rubygems-token", r"rubygems_[0-9a-f]{48}" + _END),
    ("twilio-key", r"SK[0-9a-f]{32}" + _END),
    ("sendgrid-key", rf"SG\.[\w-]{{22}}\.[\w-]{{43}}{_END}"),
    ("mailgun-key", r"key-[0-9a-f]{32}" + _END),
    ("telegram-token", r"[0-9]{8,10}:AA[\w-]{33}" + _END),
    ("discord-token", rf"[MNO][A-Za-z0-9]{{22,27}}\.[\w-]{{6}}\.[\w-]{{27,38}}{_END}"),
    ("azure-client-secret", r"[\w~.]{3}[0-9]Q~[\w~.-]{31,34}" + _END),
    ("digitalocean-token", r"do[opr]_v1_[0-9a-f]{64}" + _END),
    ("shopify-token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}" + _END),
    ("square-token", rf"EAAA[\w-]{{60}}{_END}|sq0(?:atp-[\w-]{{22}}|csp-[\w-]{{43}}){_END}"),
    ("databricks-token", r"dapi[0-9a-f]{32}(?:-[0-9])?" + _END),
    ("vault-token", r"hv[bsr]\.[\w-]{24,}"),
    ("terraform-token", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}"),
    ("grafana-token", r"glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}|glc_[A-Za-z0-9+/]{32,}={0,2}"),
    ("newrelic-key", r"NRAK-[A-Z0-9]{27}" + _END),
    ("linear-key", r"lin_(?:api|oauth)_[A-Za-z0-9]{40,}"),
    ("notion-token", rf"(?:ntn_[0-9]{{11}}[A-Za-z0-9]{{35}}|secret_[A-Za-z0-9]{{43}}){_END}"),
    ("figma-token", r"fig[dour]_[\w-]{40,}"),
    ("postman-key", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}" + _END),
    ("doppler-token", r"dp\.(?:pt|sa|ct|st|said|scim|audit)\.(?:[\w-]{1,40}\.)?[A-Za-z0-9]{40,}"),
    ("planetscale-token", r"pscale_(?:tkn|oauth|pw)_[\w-]{32,}"),
    ("supabase-token", r"sbp_[0-9a-f]{40}" + _END),
    ("docker-token", r"dckr_[op]at_[\w-]{27,}"),
    ("atlassian-token", r"ATATT3[\w=-]{150,}"),
    ("sentry-token", r"sntryu_[0-9a-f]{64}|sntrys_eyJ[A-Za-z0-9+/]{20,}={0,2}_[A-Za-z0-9+/]{43}"),
    ("tailscale-key", r"tskey-[a-z]{3,8}-[A-Za-z0-9]{8,}-[A-Za-z0-9]{16,}"),
    ("age-key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}" + _END),
    ("sui-key", r"suiprivkey1[a-z0-9]{50,80}" + _END),
    ("jwt", r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}"),
)

# Between a label and its value: `: "`, ` = '`, `'] = "`, ` is `, and `\": \"` of JSON in JSON.
_IS: Final = (
    r"(?:(?:[\"'`\])]{0,2}|\\{1,3}[\"'])[ \t]{0,3}(?::=|=>|[:=])[ \t]{0,3}|[ \t]is[ \t])"
    r"(?:[\"'`]|\\{1,3}[\"'])?"
)
_IS_OR_SPACE: Final = rf"(?:{_IS}|[ \t]{{1,3}}[\"'`]?)"  # a flag, or a setting's command
# The last character is no dot, because a sentence may end there.
_OPAQUE: Final = r"[A-Za-z0-9._~+/-]{19,}[A-Za-z0-9_~+/-]={0,2}"
_BASE64_40: Final = r"[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=])"
_AUTHORIZATION: Final = r"(?i:authorization)\W{1,8}"
_LABEL: Final = (
    r"(?i:secret|token|password|passwd|passphrase|seed"
    r"|(?:api|access|private|secret|encryption|signing|auth|master)[ _.-]?key)(?:_hex)?"
)

_USERINFO: Final = (
    r"(?<=://)(?:\[redacted:[a-z-]{1,30}\])?[^\s/:@?#\[]*:"
    r"(?P<url_password>[^\s/@]+(?:@[^\s/@:,;\"'<>()\[\]]+(?=@))?)"
    r"(?=@(?!sha256:))"  # an image pinned by its digest also has a colon and an @
)
# Of braces those around a name or a call are a template's, and `{{ }}` whatever they hold.
_PLACEHOLDER: Final = re.compile(
    r"(?:\$[A-Z_][A-Z0-9_]*|\$\{[^{}]*\}|\{[\w.-]*(?:[\[(][^{}]*[\])])?\}|\{\{[^{}]*\}\}"
    r"|<[^<>]*>|\*+|x+|X+|\.+|%s)[),.\]]{0,2}"
)
# Of a URL, of JDBC, and as .NET and ODBC write them: in quotes or braces it may hold what else ends
# it, and doubles their end; longer than a passphrase are tokens, which have no blanks. Behind a
# quote that ends the whole string in code comes a blank, a semicolon or another quote. `PWD` is a
# folder in a shell.
_BARE: Final = r"(?:[^\s&;\"'<>`\\]|\\(?![\"']))"
_END_OF_VALUE: Final = rf"[),.\]]{{0,2}}(?!{_BARE})"  # a sentence may go on behind it
_CONNECTION_STRING: Final = (
    r"(?:[?&;]|; )(?i:password|passwd|pwd(?!=[\"']?[/~.]))=[\"']?(?!\$\()(?P<url_password>"
    rf"(?<=\")(?![\s;\"'`])(?:(?:[^\"\n]|\"\"){{1,128}}+|(?:[^\"\s]|\"\")++)(?=\"{_END_OF_VALUE})"
    rf"|(?<=')(?![\s;\"'`])(?:(?:[^'\n]|''){{1,128}}+|(?:[^'\s]|'')++)(?='{_END_OF_VALUE})"
    rf"|(?<==)\{{\{{[^{{}}\n]{{1,128}}\}}\}}{_END_OF_VALUE}"
    rf"|(?<==)\{{(?:[^}}\n]|\}}\}}){{1,128}}+\}}{_END_OF_VALUE}"
    rf"|{_BARE}+)"
)

# Unbroken or in the groups printed on cards; digits joined to anything else are other numbers, and
# so is what follows the country of an IBAN or four digits of a longer number.
_CARD: Final = (
    r"(?<![\w.,/+-])(?<![A-Z]{2}\d{2} )(?<!\d{4}[ -])(?P<card_number>"
    r"\d{14,19}|\d{4}([ -])\d{4}\2\d{4}\2\d{4}(?:\2\d{3})?|\d{4}([ -])\d{6}\3\d{4,5}"
    r"|\d{6}[ -]\d{13})(?![\w/-]|[.,]\d)"
)
_CARD_RANGES: Final = (  # first digits from, to, lengths
    ("34", "34", {15}),
    ("37", "37", {15}),
    ("300", "305", {14, 16}),
    ("3095", "3095", {14, 16}),
    ("36", "36", {14, 16}),
    ("38", "39", {14, 16}),
    ("3528", "3589", {16, 19}),
    ("4", "4", {16, 19}),
    ("51", "55", {16}),
    ("2200", "2204", {16, 19}),
    ("2221", "2720", {16}),
    ("5018", "5018", {16, 19}),
    ("5020", "5020", {16, 19}),
    ("5038", "5038", {16, 19}),
    ("5893", "5893", {16, 19}),
    ("60", "60", {16, 19}),
    ("62", "62", {16, 17, 19}),  # those of 18 digits cannot be told from Chinese identity numbers
    ("6304", "6304", {16, 19}),
    ("644", "649", {16, 19}),
    ("65", "65", {16, 19}),
    ("6759", "6763", {16, 19}),
)


def is_card(digits: str) -> bool:
    """Tell whether `digits`, perhaps in groups, has an issuer's prefix and length and checks."""
    digits = re.sub("[ -]", "", digits)
    return _luhn(digits) and any(
        first <= digits[: len(first)] <= last and len(digits) in lengths
        for first, last, lengths in _CARD_RANGES
    )


def _luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def is_no_filler(value: str) -> bool:
    """Tell a token from what stands for one in instructions: `ghp_XXXX…`."""
    return len(set(value)) >= 8


def is_no_placeholder(value: str) -> bool:
    """Tell a password from a variable, a template, asterisks and a mark of our own."""
    of_ours = value.startswith("[redacted:") and value[10:-1] in KINDS
    return not of_ours and _PLACEHOLDER.fullmatch(value) is None


def is_opaque(value: str) -> bool:
    """Tell random letters and digits from words and from names of classes and functions.

    In random ones about every second character is of another sort than the one before it; where
    capitals begin words, that is rarer.
    """
    plain = re.sub("[^A-Za-z0-9]", "", value)
    sorts = ["0" if c.isdigit() else "a" if c.islower() else "A" for c in plain]
    changes = sum(a != b for a, b in pairwise(sorts))
    words = "A" in sorts and "a" * 6 in "".join(sorts)
    return "0" in sorts and changes >= len(sorts) * (0.4 if words else 0.2)


def is_basic(value: str) -> bool:
    """Tell whether `value` is the base64 of a user, a colon and a password."""
    try:
        return b":" in base64.b64decode(value, validate=True)
    except ValueError:
        return False


def _any_token() -> str:
    """Any token, in a group of its kind. Almost no word gets as far as to the groups: tried at each
    word or full stop, they would take as long as all other shapes together, and nothing else runs
    while a shape is looked for."""
    shapes = "|".join(shape for _, shape in _TOKENS)
    kinds = "|".join(f"(?P<{kind.replace('-', '_')}>{shape})" for kind, shape in _TOKENS)
    return f"{_START}(?={_AS_LONG})(?={shapes})(?:{kinds})"


# So many characters without a blank has each secret of a kind that is not in `SHORT`, at the least.
UNBROKEN_MIN: Final = 15
SHORT: Final = frozenset({"basic_auth", "url_password", "card_number"})
# In the order in which they are looked for, each with what else must hold of the value.
SHAPES: Final[tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...]] = tuple(
    (re.compile(shape, re.ASCII), accepts)
    for shape, accepts in (
        (
            r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<webhook_url>[\w/]{30,})",
            is_no_filler,
        ),
        (r"/api/(?:v\d{1,2}/)?webhooks/(?P<webhook_url>\d{17,20}/[\w-]{60,})", is_no_filler),
        (
            r"(?:AKIA|ASIA)[A-Z2-7]{16}[\s:,;/|\"']{1,5}(?:secret[\s:=\"']{1,3})?"
            rf"(?P<aws_secret>{_BASE64_40})",
            is_no_filler,
        ),
        (_any_token(), is_no_filler),
        (
            rf"{_AUTHORIZATION}(?i:bearer|token)[ \t]{{1,3}}(?P<bearer_token>{_OPAQUE})",
            is_opaque,
        ),
        (
            rf"{_AUTHORIZATION}(?i:basic)[ \t]{{1,3}}(?P<basic_auth>[A-Za-z0-9+/]{{4,}}={{0,2}})",
            is_basic,
        ),
        (
            rf"(?i:account[_-]?key|SharedAccessKey){_IS_OR_SPACE}"
            r"(?P<azure_key>[A-Za-z0-9+/]{86}==|[A-Za-z0-9+/]{43}=)",
            is_no_filler,
        ),
        (r"(?<!\w)sig=(?P<azure_sas>[A-Za-z0-9%+/_-]{43,}={0,2})", is_no_filler),
        (
            r"(?i:secret[ _-]?access[ _-]?key|aws[ _-]?secret[ _-]?key|session[ _-]?token)"
            rf"{_IS_OR_SPACE}"
            rf"(?P<aws_secret>{_BASE64_40}|(?:IQoJ|FwoG|FQoG)[A-Za-z0-9+/]{{99,}}={{0,2}})",
            is_no_filler,
        ),
        (_USERINFO, is_no_placeholder),
        (_CONNECTION_STRING, is_no_placeholder),
        (_CARD, is_card),
        (
            rf"(?:{_LABEL}{_IS}|--[a-z-]{{0,20}}{_LABEL}[ \t])(?:0x)?"
            rf"(?P<labelled_secret>{_OPAQUE})",
            is_opaque,
        ),
    )
)

# Those of which a secret may be short: a text without a long word is looked through for no others.
SHORT_SHAPES: Final = tuple(each for each in SHAPES if not SHORT.isdisjoint(each[0].groupindex))

KINDS: Final = frozenset(
    group.replace("_", "-") for shape, _ in SHAPES for group in shape.groupindex
) | {"private-key"}
