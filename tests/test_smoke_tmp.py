from tests.services import *
async def test_smoke(bench):
    a = await bench.account()
    c = await bench.caller(a)
    items = await bench.remember(c, "Anna prefers tea.", "The van has the plate B-XY 123.")
    print(items)
    print(await bench.texts(c, "who likes tea"))
    got = await bench.services.memory.get(c, items[0].id)
    print(got)
    print(await bench.services.memory.forget(c.access, items[0].id))
    print(await bench.texts(c, "tea"))
async def test_hybrid(hybrid):
    bench = hybrid
    a = await bench.account("sealed")
    c = await bench.unlocked(a, TEAM, hold_s=100)
    items = await bench.remember(c, "Anna prefers tea.", "The van has the plate B-XY 123.")
    await bench.embed(c, items)
    r = await bench.services.memory.recall(c, Query(text="beverage she likes", namespaces=[TEAM]))
    print(r)
    print(await bench.services.memory.forget(c.access, items[0].id))
