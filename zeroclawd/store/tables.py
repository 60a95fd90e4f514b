"""The tables of the one SQLite file, as migrations that are applied in order and never changed afterwards."""

from __future__ import annotations

import sqlite3

from zeroclawd.errors import StoreError

_FIRST = (
    """
    CREATE TABLE ledger (
        seq INTEGER PRIMARY KEY,
        prev_hash TEXT NOT NULL,
        hash TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        wall_time INTEGER NOT NULL,
        wall_synced INTEGER NOT NULL,
        monotonic INTEGER NOT NULL,
        kind TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        agent TEXT NOT NULL,
        channel TEXT NOT NULL,
        principal TEXT NOT NULL,
        tool TEXT NOT NULL,
        device TEXT NOT NULL,
        risk TEXT NOT NULL,
        arguments TEXT NOT NULL,
        arguments_digest TEXT NOT NULL,
        decision TEXT NOT NULL,
        decided_by TEXT NOT NULL,
        approval_id TEXT NOT NULL,
        outcome TEXT NOT NULL,
        result_digest TEXT NOT NULL,
        shown_digest TEXT NOT NULL,
        receipt TEXT NOT NULL,
        note TEXT NOT NULL
    )
    """,
    # Segments of the ledger that were exported and may be removed here: only rows that one of them covers can be deleted.
    """
    CREATE TABLE segments (
        last_seq INTEGER PRIMARY KEY,
        first_seq INTEGER NOT NULL,
        hash TEXT NOT NULL,
        file TEXT NOT NULL
    )
    """,
    """
    CREATE TRIGGER ledger_is_never_changed BEFORE UPDATE ON ledger
    BEGIN SELECT RAISE(ABORT, 'a row of the ledger is never changed'); END
    """,
    """
    CREATE TRIGGER ledger_is_exported_first BEFORE DELETE ON ledger
    WHEN OLD.seq > (SELECT coalesce(max(last_seq), 0) FROM segments)
    BEGIN SELECT RAISE(ABORT, 'a row of the ledger is exported before it is removed'); END
    """,
    # Intents that have no outcome yet: an index that stays tiny, so that a boot need not read the whole ledger.
    """
    CREATE TABLE open_intents (seq INTEGER PRIMARY KEY, turn_id TEXT NOT NULL, call_id TEXT NOT NULL)
    """,
    """
    CREATE TABLE inbox (
        n INTEGER PRIMARY KEY AUTOINCREMENT,
        channel TEXT NOT NULL,
        command_id TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        routing BLOB,
        finished INTEGER NOT NULL DEFAULT 0,
        reply BLOB,
        taken_at INTEGER NOT NULL,
        synced INTEGER NOT NULL,
        UNIQUE (channel, command_id)
    )
    """,
    "CREATE INDEX inbox_replies ON inbox (n) WHERE reply IS NOT NULL",
    """
    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY,
        channel TEXT NOT NULL,
        topic TEXT NOT NULL,
        payload BLOB NOT NULL,
        qos INTEGER NOT NULL,
        retain INTEGER NOT NULL,
        expires_at REAL NOT NULL,
        properties BLOB NOT NULL,
        size INTEGER NOT NULL,
        put_at REAL NOT NULL,
        synced INTEGER NOT NULL
    )
    """,
    "CREATE INDEX outbox_by_channel ON outbox (channel, id, size)",
    """
    CREATE TABLE questions (
        n INTEGER PRIMARY KEY AUTOINCREMENT,
        request_id TEXT NOT NULL UNIQUE,
        channel TEXT NOT NULL,
        question BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE grants (
        id TEXT PRIMARY KEY,
        principal TEXT NOT NULL,
        tool TEXT NOT NULL,
        match TEXT NOT NULL,
        digest TEXT NOT NULL,
        device TEXT NOT NULL,
        granted_by TEXT NOT NULL,
        expires_at REAL NOT NULL
    )
    """,
    """
    CREATE TABLE sessions (
        n INTEGER PRIMARY KEY AUTOINCREMENT,
        session TEXT NOT NULL UNIQUE,
        messages BLOB NOT NULL
    )
    """,
    "CREATE TABLE memory (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)

MIGRATIONS = (_FIRST,)
NAMES = ("ledger", "segments", "open_intents", "inbox", "outbox", "questions", "grants", "sessions", "memory")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to the newest version, each step in a transaction of its own.

    StoreError when the file was written by a newer version: it is left as it is.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise StoreError(
            f"the database has version {version}, this program knows {len(MIGRATIONS)}",
            hint="install the newer zeroclawd again, or move the file away to start with an empty one",
        )
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
