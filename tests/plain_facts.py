"""Plain facts that people state in a turn, and small talk: what every gateway's tests say.

Not here: the sets by which the rules are measured (`bench/data/facts`).
"""

from typing import Final

FACTS: Final = (
    "I'm vegan.",
    "We use Go, not Rust.",
    "Sarah took over the payments team from Luis.",
    "The staging cluster was renamed to Kestrel by the platform team today.",
    "I'm allergic to penicillin.",
    "My daughter starts school in September.",
    "Our office is on the third floor.",
    "I live in Porto now.",
    "Tom is our new designer.",
    "Call me Jo.",
    "The release is on the 14th.",
    "We deploy with Ansible.",
    "Our cat is called Biscuit.",
    "I take metoprolol in the mornings.",
    "I hate coriander.",
    "Actually, the meeting is on Tuesday.",
    "Elif runs the data team.",
    "The customer is called Nordwind GmbH.",
    "We don't ship on Fridays.",
    "Grandma turns 90 in May.",
    "Backups run at two in the night.",
    "I quit smoking.",
    "Her name is Ottilie, not Odile.",
    "The bakery on Mill Street is closed on Mondays.",
)
FACTS_KEPT_MIN: Final = 22
SMALL_TALK: Final = tuple(
    line.strip()
    for line in """
    hi there
    thanks, that worked
    ok
    can you fix the failing test?
    run the linter again
    what time is it in Tokyo?
    looks good to me
    haha nice one
    please summarise this file
    hmm, not sure
    go on
    let's try again
    make it shorter
    the build is failing again
    I'm back
    one sec
    wow, that was fast
    show me the diff
    never mind
    could you explain that again
    good morning!
    that's not what I asked for
    delete the second paragraph
    try it with a larger batch
    sounds good, go ahead
    why is it so slow
    still broken
    write me a poem about autumn
    what do you think
    translate this to French
    no, the other one
    I see the error now
    it works now
    I'll test it later
    add a comment there
    open the settings page
    great, thank you so much
    oh come on
    I have a question
    give me three alternatives
    """.strip().splitlines()
)
SMALL_TALK_KEPT_MAX: Final = 1


def kept(said: tuple[str, ...], stored: list[str]) -> list[str]:
    """Return those of these lines that a stored text holds."""
    return [line for line in said if any(line.rstrip(".") in text for text in stored)]
