"""A registry and a slot of its own inside an application that is made of Pykka actors.

Run it: ``python docs/examples/embedded.py``.
"""

from __future__ import annotations

import pykka

from actors import Ended, Lifecycle, RegistryActor, Runtime, SlotActor, Submit, TaskContext, TaskHandle, open_runtime
from admission import AdmissionPolicy, Submission, TaskSpec


def sync(ctx: TaskContext, tenant: str) -> str:
    ctx.sleep(0.01)
    return f"{tenant} is in sync"


class Clerk(pykka.ThreadingActor):
    """Tells: hears of everything that happens to what it submitted, and of the end exactly once."""

    def __init__(self, registry: pykka.ActorRef[RegistryActor]) -> None:
        super().__init__()
        self.registry = registry
        self.asked: dict[str, pykka.Future[str]] = {}

    def sync(self, tenant: str) -> pykka.Future[str]:
        submission = Submission(TaskSpec.once(sync, args=(tenant,)), slot=tenant, policy=AdmissionPolicy.REPLACE)
        self.registry.tell(Submit(submission, notify=self.actor_ref, token=tenant))
        self.asked[tenant] = pykka.ThreadingFuture()
        return self.asked[tenant]

    def on_receive(self, message: Lifecycle | Ended[str]) -> None:
        match message:
            case Lifecycle(token=tenant, event=event):
                print(f"clerk: {tenant} {event.kind}")
            case Ended(token=tenant, outcome=outcome):
                self.asked.pop(tenant).set(f"clerk: {tenant} {outcome}")


class Auditor(pykka.ThreadingActor):
    """Asks: gets a handle, and waits for its result where waiting is its own business."""

    def __init__(self, registry: pykka.ActorRef[RegistryActor]) -> None:
        super().__init__()
        self.registry = registry

    def audit(self, tenant: str) -> str:
        spec = TaskSpec.once(sync, args=(tenant,))
        handle: TaskHandle[str] = self.registry.ask(Submit(Submission(spec, slot=tenant)), block=True)
        return f"auditor: {handle.result(timeout=5)}"


class Printer(pykka.ThreadingActor):
    """Has one slot of its own, without a registry: its jobs never overlap."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.slot = SlotActor.start("printer", runtime=runtime)

    def print_pages(self, pages: list[str]) -> list[str]:
        specs = [TaskSpec.once(print_page, args=(page,)) for page in pages]
        handles: list[TaskHandle[str]] = [self.slot.ask(Submit(spec), block=True) for spec in specs]
        return [handle.result(timeout=5) for handle in handles]


def print_page(_ctx: TaskContext, page: str) -> str:
    return f"printer: {page}"


def main() -> None:
    runtime = open_runtime()
    try:
        registry = RegistryActor.start(runtime, grace=5)
        clerk = Clerk.start(registry).proxy()
        auditor = Auditor.start(registry).proxy()
        printer = Printer.start(runtime).proxy()

        ended = [clerk.sync(tenant).get() for tenant in ("acme", "globex")]
        print(auditor.audit("acme").get())
        print("\n".join(printer.print_pages(["page 1", "page 2"]).get()))
        for end in ended:
            print(end.get(timeout=5))
    finally:
        pykka.ActorRegistry.stop_all()  # whatever still runs is given up at once
        runtime.close()


if __name__ == "__main__":
    main()
