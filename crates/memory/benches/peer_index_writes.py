"""The peer's batched index writes: 500 chunks with 3,000 refs of made-up knowledge into a database on disk, in one
transaction, as its ingestion commits a batch. Vectors are made up beforehand and none are asked for.

    peer_index_writes.py FOLDER ROUNDS

Prints one JSON line: the milliseconds of each round.
"""

import asyncio
import json
import os
import pathlib
import random
import sys
import time
import warnings

# Nobody is asked: the address is one where nobody listens.
os.environ.update(OPENAI_API_KEY="none", OPENAI_BASE_URL="http://127.0.0.1:9/v1", OPENAI_MODEL="none")
warnings.filterwarnings("ignore")

import numpy
from typeagent.knowpro.convsettings import ConversationSettings
from typeagent.knowpro.knowledge_schema import Action, ConcreteEntity, Facet, KnowledgeResponse
from typeagent.podcasts.podcast import Podcast, PodcastMessage, PodcastMessageMeta
from typeagent.storage.memory import propindex, semrefindex
from typeagent.storage.utils import create_storage_provider

CHUNKS, REFS_PER_CHUNK, WORDS = 500, 6, 2_000
TYPES = "person book place company animal event series product idea award country song".split()
VERBS = "say write read make find sell build visit like teach learn meet win lose carry paint".split()


def made_up(seed):
    rng = random.Random(seed)
    words = [f"w{number:x}{rng.randrange(1000):x}" for number in range(WORDS)]
    word = lambda: words[min(int(WORDS ** rng.random()) - 1, WORDS - 1)]
    name = lambda: f"{word()} {word()}"
    items = []
    for _ in range(CHUNKS):
        entities, actions, topics = [], [], []
        for _ in range(REFS_PER_CHUNK):
            kind = rng.randrange(5)
            if kind < 2:
                facets = [Facet(name=word(), value=word())] if rng.randrange(3) == 0 else None
                entities.append(ConcreteEntity(name=name(), type=[rng.choice(TYPES)], facets=facets))
            elif kind < 4:
                actions.append(Action(verbs=[rng.choice(VERBS)], verb_tense="past", subject_entity_name=name(),
                                      object_entity_name=word()))
            else:
                topics.append(name())
        text = " ".join(word() for _ in range(40))
        items.append((text, KnowledgeResponse(entities=entities, actions=actions, inverse_actions=[], topics=topics)))
    return items


async def write(path, seed):
    items = made_up(seed)
    settings = ConversationSettings()
    settings.storage_provider = await create_storage_provider(
        settings.message_text_index_settings, settings.related_term_index_settings, str(path), PodcastMessage)
    conversation = await Podcast.create(settings, name="made up", tags=[])
    messages = [PodcastMessage([text], PodcastMessageMeta(speaker=None, recipients=[])) for text, _ in items]
    vectors = numpy.random.default_rng(seed).standard_normal((CHUNKS, 1536)).astype(numpy.float32)
    vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
    knowledge = [(ordinal, 0, found) for ordinal, (_, found) in enumerate(items)]
    begun = time.monotonic()
    async with settings.storage_provider:
        await conversation.messages.extend(messages, chunk_embeddings=list(vectors))
        await semrefindex.add_knowledge_batch_to_semantic_ref_index(conversation, knowledge)
        await propindex.add_to_property_index(conversation, 0)
    took = time.monotonic() - begun
    refs = await conversation.semantic_refs.size()
    assert refs == CHUNKS * REFS_PER_CHUNK, refs
    await settings.storage_provider.close()
    return took * 1_000


async def main():
    folder, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    print(json.dumps([await write(folder / f"peer{number}.db", number) for number in range(rounds)]))


asyncio.run(main())
