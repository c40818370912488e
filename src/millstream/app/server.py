"""Builds a broker from its configuration, starts it, stops it. Everything is constructed here and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

import structlog

from millstream.app.control import Control
from millstream.app.live_policies import LivePolicies
from millstream.app.memory import MemoryGuard
from millstream.app.reader_process import ReaderProcess
from millstream.app.rights import Rights
from millstream.app.storage import DurableStore
from millstream.app.storage_health import StorageHealth
from millstream.batches.commits import StageCommits
from millstream.broker.account_options import AccountOptions
from millstream.broker.broker import DEFAULT_ACCOUNT, Broker
from millstream.broker.health import Health
from millstream.broker.health_topics import HealthTopics
from millstream.broker.line import Ending
from millstream.broker.system_topics import SystemTopics
from millstream.build_kind import is_compiled
from millstream.config.limits import to_limits
from millstream.config.listeners import Listener, is_anonymous_allowed, is_loopback, listeners_of
from millstream.config.named import Account as AccountSettings
from millstream.config.quotas import to_terms
from millstream.config.schema import Config
from millstream.model.errors import Refused
from millstream.model.outbox import OutboxPool
from millstream.protocols.amqp091.context import AmqpContext
from millstream.protocols.mqtt.context import MqttContext
from millstream.queues.definition import make_definition
from millstream.runtime.disk.data_dir import advise, describe, prepare_data_dir
from millstream.runtime.disk.data_folder import StorageFault, verify_command
from millstream.runtime.disk.failpoints import find_failpoints
from millstream.runtime.entropy import SystemEntropy
from millstream.runtime.log_health import LogHealth
from millstream.runtime.log_observer import LogObserver
from millstream.runtime.logs import configure_logs
from millstream.runtime.loop.clock import start_clock
from millstream.runtime.loop.turn import LoopTurn
from millstream.runtime.loop.wakeup import LoopWakeup
from millstream.runtime.memory.allocator import keep_freed_memory
from millstream.runtime.transport.amqp_reception import AmqpReception
from millstream.runtime.transport.busy_clients import BusyClients
from millstream.runtime.transport.deadlines import Deadlines
from millstream.runtime.transport.descriptors import Descriptors, check_limit
from millstream.runtime.transport.gate import Gate, Reception
from millstream.runtime.transport.intake import Intake
from millstream.runtime.transport.listeners import Server, address_of, listen, make_tls_context
from millstream.runtime.transport.tls_server import TlsDoor
from millstream.runtime.transport.websocket_upgrade import WebSocketOptions
from millstream.runtime.verifier import Verifier
from millstream.storage.disk import DiskFault
from millstream.storage.memory_store import MemoryStore
from millstream.storage.store import Store
from millstream.version import VERSION

TICK_S: Final = 0.05
DESCRIPTORS_EVERY: Final = 10  # ticks
REFRESH_EVERY: Final = 20  # ticks between looks at the files of users and rules
DRAIN_S: Final = 5.0
# Objects of the hot path are not part of cycles. A look holds the loop for up to a microsecond per object: the second kind covers
# three times the first number, the full one is left to very many new objects and to quiet times (`MemoryGuard`).
GC_THRESHOLDS: Final = (50_000, 1, 300)


class StopFault(Exception):
    """The broker was told to stop and did, but not all it had been told is on disk: why."""


def to_account_options(config: Config) -> dict[str, AccountOptions]:
    return {
        name: AccountOptions(account.max_ack_pending, to_terms(config, name))
        for name, account in ({DEFAULT_ACCOUNT: AccountSettings()} | config.accounts).items()
    }


class Millstream:
    """A broker in this event loop: `async with Millstream(config) as broker: broker.addresses`."""

    def __init__(self, config: Config, store: Store | None = None, with_control: bool = False) -> None:
        self.config = config
        self.addresses: dict[str, tuple[str, int]] = {}
        self.stop_fault = ""  # once it has stopped: why not all it was told could be written
        uses_disk = store is None and config.storage.durability != "memory"
        if uses_disk:
            prepare_data_dir(config.data_dir)
        self._rights = Rights(config)
        self._wakeup = LoopWakeup()
        self._turn = LoopTurn()
        clock = start_clock()
        self.health = Health(clock, LogHealth())
        self._durable: DurableStore | None = None
        if uses_disk:
            self._durable = self._open_storage()
            store = self._durable.store
        limits = to_limits(config)
        self._memory = MemoryGuard(config, limits)
        self.broker = Broker(
            limits,
            store or MemoryStore(),
            self._rights.authorizer,
            to_account_options(config),
            None if self._durable is None else self._durable.segments,
            self._wakeup,
            clock,
            self.health,
            self._memory.budget,
            self._rights.authenticator,
        )
        self._intake = Intake(self._memory.budget.limit)
        log = None if self._durable is None else self._durable.log
        self._turn.start(self.broker, log, self._intake, self._wakeup.clock)
        self._storage_health: StorageHealth | None = None
        if self._durable is not None:
            self._storage_health = StorageHealth(
                self.health, self._durable.log, config.storage.stall_timeout, self.broker
            )
        self._policies = LivePolicies(config, self.broker)
        queries = {} if self._durable is None else self._durable.queries
        self._stages = StageCommits(self.broker, config.data_dir, queries, find_failpoints())
        self._turn.listen(self._stages.on_durable)
        # an embedded broker is controlled by the program around it
        self._has_control = with_control and config.control.enabled
        self._control: Control | None = None
        self._reader: ReaderProcess | None = None
        self._servers: list[Server] = []
        self._ticker: asyncio.Task[None] | None = None
        self._verifier: Verifier | None = None
        self._gate: Gate | None = None
        self._descriptors: Descriptors | None = None
        self._busy_clients: BusyClients | None = None
        self._amqp: AmqpContext | None = None
        self._deadlines = Deadlines()
        self._system_topics: SystemTopics | None = None
        self._health_topics = HealthTopics(self.broker, self.health)

    def _open_storage(self) -> DurableStore:
        config = self.config
        try:
            return DurableStore(
                config.data_dir,
                config.storage,
                self._wakeup,
                self._turn.on_durable,
                self._on_folded,
                self.health,
            )
        except DiskFault as fault:
            hint = advise(config.data_dir, fault, verify_command(config.data_dir))
            raise StorageFault(f"{config.data_dir}: {fault.text}", hint) from None
        except OSError as error:
            path = config.data_dir if error.filename is None else Path(os.fsdecode(error.filename))
            raise describe(path, error, "cannot be used") from None

    async def __aenter__(self) -> Millstream:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """One that fails leaves nothing behind: the program around it may try again, with another broker."""
        try:
            gate, verifier = self._begin()
        except BaseException:
            await self._abandon()
            raise
        try:
            await self._open(gate, verifier)
        except BaseException:
            await self.stop()
            raise

    async def _abandon(self) -> None:
        """Nobody was served yet."""
        await self._policies.stop()
        self._memory.stop()
        if self._verifier is not None:
            self._verifier.close()
        if self._durable is not None:
            self._durable.release()
            self._durable = None

    def _begin(self) -> tuple[Gate, Verifier]:
        """Restore what is stored, and say that a broker runs on it."""
        if not structlog.is_configured():  # embedded in a program that has no opinion on logs
            configure_logs("warning", self.config.log.format)
        loop = asyncio.get_running_loop()
        broker = self.broker
        wakeup = self._wakeup
        pool = OutboxPool(wakeup, time.monotonic_ns)
        self._turn.write_to(pool)
        wakeup.start(pool, self._turn.end)
        auth = self.config.auth
        self._verifier = verifier = Verifier(
            self._rights.authenticator,
            loop,
            auth.max_waiting_logins,
            auth.max_waiting_logins_per_address,
            self.health,
        )
        self._gate = gate = self._make_gate(pool, verifier)
        self._turn.listen(gate.on_durable)
        self._descriptors = Descriptors(self.health, gate)
        self._busy_clients = BusyClients(gate, self.health)
        self._memory.start(broker, gate, None if self._durable is None else self._durable.seal)
        now_ns = time.monotonic_ns()
        broker.clock.wall_s = int(time.time())
        broker.restore(now_ns)
        self._declare_queues()
        self._policies.start()
        for account in broker.accounts.values():
            account.review_rights()
        if self._durable is not None:
            self._durable.start()
        return gate, verifier

    async def _open(self, gate: Gate, verifier: Verifier) -> None:
        """Serve."""
        loop = asyncio.get_running_loop()
        broker = self.broker
        now_ns = time.monotonic_ns()
        self._stages.start()
        broker.end_overdue(now_ns)
        self._system_topics = SystemTopics(broker, VERSION, broker.limits.sys_interval_s, now_ns)
        self._system_topics.on_tick(now_ns)
        self._health_topics.on_tick()
        door = TlsDoor(gate, loop)
        for listener in listeners_of(self.config):
            if listener.section == "reader":
                continue  # it has a process of its own
            self._servers.append(await self._listen(gate, listener, door))
            self.addresses[listener.name] = address_of(self._servers[-1])
        await self._start_control(verifier)
        self._ticker = loop.create_task(self._tick())

    def _make_gate(self, pool: OutboxPool, verifier: Verifier) -> Gate:
        """With what the endpoints of each protocol share."""
        rights = self._rights
        observer = LogObserver(self.broker.accounts[DEFAULT_ACCOUNT].counters)
        entropy = SystemEntropy()
        mqtt = MqttContext(
            self.broker,
            rights.authenticator,
            pool,
            observer,
            entropy,
            rights.scram_key,
            self.config.mqtt.server_reference or "",
        )
        self._amqp = AmqpContext(
            self.broker,
            rights.authenticator,
            pool,
            observer,
            entropy,
            rights.scram_key,
            is_anonymous_allowed(self.config),
            self.config.auth.certificates_as_users,
            self._policies.in_force,
        )
        limits = self.broker.limits
        return Gate(mqtt, self._deadlines, verifier, limits, self._wakeup.clock, self._intake)

    async def _start_control(self, verifier: Verifier) -> None:
        if not self._has_control:
            return
        seal = None if self._durable is None else self._durable.seal
        interval_s = self.config.reader.seal_interval_ms / 1000
        self._control = Control(
            self.broker,
            self.config.data_dir,
            self._stages,
            seal,
            verifier.wait_decision,
            interval_s,
            self._policies.in_force,
        )
        self._turn.listen(self._control.on_durable)
        await self._control.start()
        if self.config.reader.enabled:
            self._reader = ReaderProcess(self.config, self.health)
            self.addresses |= self._reader.start()

    def apply(self, config: Config) -> None:
        """Take on what can change while it runs: the policies. To be called in its loop."""
        self._policies.replace(config)

    def _declare_queues(self) -> None:
        catalog = self.broker.get_account(DEFAULT_ACCOUNT).queues.catalog
        for name, settings in self.config.queues.items():
            fields = settings.model_dump() | {"bindings": list(settings.bindings)}
            try:
                catalog.declare(name, make_definition(fields))
            except Refused as refused:
                raise StorageFault(
                    refused.text, f"millstream queue show {name}", f"queues.{name}", is_setting=True
                ) from None

    def _on_folded(self, sequence: int) -> None:
        self.broker.on_folded(sequence)

    async def _listen(self, gate: Gate, listener: Listener, door: TlsDoor) -> Server:
        tls = listener.tls
        context = None
        if tls is not None and tls.cert_file is not None and tls.key_file is not None:
            context = make_tls_context(
                tls.cert_file,
                tls.key_file,
                tls.ca_file,
                tls.require_client_certificate,
                f"{listener.section}.tls.cert_file",
            )
        options = None
        if listener.section == "websocket":
            websocket = self.config.websocket
            options = WebSocketOptions(
                websocket.path,
                tuple(websocket.allowed_origins),
                tuple(websocket.allowed_hosts),
                is_loopback(listener.host),
            )
        reception: Reception = gate.mqtt
        if listener.section == "amqp":
            assert self._amqp is not None
            reception = AmqpReception(self._amqp)
        return await listen(
            gate, reception, listener.name, listener.host, listener.port, options, context, door
        )

    async def stop(self) -> None:
        """Stop accepting, tell every client, let what was sent leave, then close."""
        if self._gate is not None:
            self._gate.is_open = False
        if self._reader is not None:
            await self._reader.stop()
        if self._control is not None:
            await self._control.stop()
        await self._stages.stop()
        await self._policies.stop()
        for server in self._servers:
            server.close()
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker
        self.broker.halt_queues()
        lines = [
            session.line
            for account in self.broker.accounts.values()
            for session in list(account.sessions.values())
            if session.line is not None
        ]
        for line in lines:
            line.end(Ending.SHUTTING_DOWN)
        if self._amqp is not None:
            self._amqp.end_all(Ending.SHUTTING_DOWN)
        if self._gate is not None:
            for stranger in list(self._gate.strange):
                stranger.close()
        deadline = time.monotonic() + DRAIN_S
        while self._gate is not None and self._gate.connections > 0 and time.monotonic() < deadline:
            self._deadlines.on_tick(time.monotonic_ns())
            await asyncio.sleep(0.01)
        for server in self._servers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), 1.0)
        self._servers.clear()
        self._memory.stop()
        if self._verifier is not None:
            self._verifier.close()
        self.broker.take_back_all()
        if self._durable is not None:
            self.stop_fault = await self._durable.close()
            self._durable = None

    def _watch_system(self, count: int) -> None:
        if self._descriptors is not None and count % DESCRIPTORS_EVERY == 0:
            self._descriptors.on_tick()
        if self._storage_health is not None:
            self._storage_health.on_tick()
        if self._durable is not None:
            self._durable.on_tick()

    async def _tick(self) -> None:
        count = 0
        while True:
            await asyncio.sleep(TICK_S)
            count += 1
            self.look(count)

    def look(self, count: int) -> None:
        """What is looked at regularly: nobody is served meanwhile, so that it counts as a turn."""
        now_ns = time.monotonic_ns()
        try:
            self.broker.on_tick(now_ns, int(time.time()))
            self._watch_system(count)
            self._memory.on_tick(now_ns)
            if self._gate is not None:
                self._gate.on_tick()
            if self._busy_clients is not None:
                self._busy_clients.on_tick(now_ns)
            self._deadlines.on_tick(now_ns)
            if self._system_topics is not None:
                self._system_topics.on_tick(now_ns)
            self._health_topics.on_tick()
            if count % REFRESH_EVERY == 0:
                self._rights.refresh(self.broker, self._amqp)
                if self._amqp is not None:
                    self._amqp.on_tick(now_ns)
        except Exception:
            log = structlog.get_logger("millstream")
            log.exception("tick_failed")
        self.broker.turns.note_tick(time.monotonic_ns() - now_ns)


def serve(
    config: Config,
    on_ready: Callable[[dict[str, tuple[str, int]]], None],
    on_started: Callable[[Millstream], None] | None = None,
) -> int:
    """Run until SIGINT or SIGTERM. Gives the exit code. `on_started` is called in the loop."""
    keep_freed_memory()
    check_limit()
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    try:
        return runner.run(_serve(config, on_ready, on_started))
    finally:
        close_loop(runner)


def close_loop(runner: asyncio.Runner) -> None:
    """Closing needs descriptors: where there are none, it must not take the place of how the broker ended."""
    try:
        runner.close()
    except (OSError, RuntimeError) as fault:
        structlog.get_logger("millstream").debug("loop_not_closed", reason=str(fault))


async def _serve(
    config: Config,
    on_ready: Callable[[dict[str, tuple[str, int]]], None],
    on_started: Callable[[Millstream], None] | None,
) -> int:
    log = structlog.get_logger("millstream")
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    millstream = Millstream(config, with_control=True)
    await millstream.start()
    if not is_compiled():
        log.warning(
            "interpreted", text="running without compiled modules, several times slower; see ./dev build"
        )
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    if on_started is not None:
        on_started(millstream)
    on_ready(millstream.addresses)
    log.info(
        "ready",
        compiled=is_compiled(),
        **{name: f"{host}:{port}" for name, (host, port) in millstream.addresses.items()},
    )
    await stop.wait()
    log.info("stopping")
    await millstream.stop()
    health = millstream.health
    wrong = {each.condition.name: each.cause for each in health.active()}
    told = {"status": health.status(), **({"conditions": wrong} if wrong else {})}
    if millstream.stop_fault:
        log.error("stopped", reason=millstream.stop_fault, **told)
        raise StopFault(millstream.stop_fault)
    log.info("stopped", **told)
    return 0
