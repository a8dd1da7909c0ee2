"""Which prompts are answered unasked: the same ones in a vault of two notes and in one of hundreds."""

import random

import pytest

from vault_memory import settings as settings_module
from vault_memory.agent.recall import is_question, sure_of
from vault_memory.query.search import search
from vault_memory_tests.integration.query.seeding import note, seed

QUEUE = note(
    "01_Projects/queue.md", "We chose NATS JetStream over Kafka for the billing events.", title="Queue decision"
)
BACKUP = note(
    "02_Areas/备份.md", "每天凌晨两点把数据库备份到对象存储，保留三十天，每季度演练一次恢复。", title="备份策略"
)
PROSE = [
    "The meeting moved to Thursday because the room was taken, and Maria will bring the slides.",
    "Before the release we want to check what changed in the parser and how the tests are doing.",
    "A good walk: from the station over the hill, then along the river until it gets dark.",
    "Tomatoes want sun and water; the ones by the wall were ripe two weeks before the others.",
    "You can freeze the dough for a month, but it should rest in the fridge over night first.",
    "周三的会议改到周五下午，因为会议室被占用了，材料由小李准备。",
    "这次旅行我们先坐火车到杭州，然后骑车绕西湖一圈，晚上住在民宿。",
    "咖啡豆磨得太细会发苦，水温在九十二度左右比较合适。",
    "新来的同事需要先看一遍开发文档，再配置自己的环境。",
    "阳台上的番茄长得很好，比去年早熟了两个星期。",
]
MATCHING = {
    "Why NATS JetStream and not Kafka for billing?": QUEUE,
    "why did we choose NATS over Kafka": QUEUE,
    "what was our decision about the queue for billing events?": QUEUE,
    "Can you remind me what we said about JetStream and billing?": QUEUE,
    "数据库备份保留多少天？": BACKUP,
    "我们的备份策略是什么": BACKUP,
    "请问数据库每天什么时候备份到对象存储": BACKUP,
    "恢复演练多久做一次，每季度吗": BACKUP,
}
UNRELATED = [
    "what is the weather in Lisbon tomorrow",
    "write a haiku about the autumn leaves",
    "Why does this function raise a KeyError, and how should we handle that?",
    "please refactor the loop so that it is easier to read",
    "which of the two do you think is better for us and why?",
    "how do I exit vim",
    "明天北京天气怎么样",
    "帮我写一首关于秋天的诗",
    "这个函数为什么会报错，应该怎么改",
    "用更简单的方式把上面的循环重写一遍",
    "我们为什么不在这里用缓存呢",
    "thanks, that is what I wanted",
]


def library(count):
    """Return the two notes that are asked about among others, all different."""
    dice = random.Random(count)
    others = [
        note(
            f"02_Areas/other {number}.md",
            f"{dice.choice(PROSE)} {dice.choice(PROSE)} Nr {number}.",
            title=f"{dice.choice(['Diary', 'Notes', '日记', '笔记'])} {number}",
        )
        for number in range(count - 2)
    ]
    return [QUEUE, BACKUP, *others]


@pytest.mark.parametrize("count", [2, 5, 30, 300])
def test_the_size_of_a_vault_does_not_decide(database, reader_dsn, tmp_path, count):
    """Plain questions bring their note and no other, in two languages; all other prompts bring nothing."""
    seed(database, *library(count))
    settings = settings_module.load(
        {"HOME": str(tmp_path), "VAULT_MEMORY_QUERY_DSN": reader_dsn, "VAULT_MEMORY_EMBEDDER": "hashing"}
    )

    def recalled(prompt):
        found = sure_of(search(prompt, k=3, settings=settings)) if is_question(prompt) else None
        return [hit.source for hit in found.items] if found else []

    assert {prompt: [wanted.path] for prompt, wanted in MATCHING.items()} == {
        prompt: recalled(prompt) for prompt in MATCHING
    }
    assert {prompt: [] for prompt in UNRELATED} == {prompt: recalled(prompt) for prompt in UNRELATED}
