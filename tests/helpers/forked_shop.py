"""A shop whose orders are forked: each is charged, approved, packed by a child, and reserved from a shelf that can be empty."""

from uuid import UUID

import arriero
from arriero import App, Permanent, Signal, StepFailed, Supervision, Undo

approved = Signal("approved", str)


class Shop:
    """A shop whose books say what was done, and whose shelf can be empty."""

    def __init__(self, store: str | None = None) -> None:
        self.books: list[str] = []
        self.is_empty = True
        self.seconds = 60.0
        self.app = App("shop", store=store)
        bank, stock = self.app.service("bank"), self.app.service("stock")

        @bank.step
        def charge(order: str, token: UUID) -> str:
            self.books.append(f"charge {order}")
            return f"receipt-{order}"

        @charge.compensation
        def refund(undo: Undo[str], order: str, token: UUID) -> None:
            self.books.append(f"refund {order}")

        @stock.step
        def look(order: str) -> None:
            raise Permanent("closed", code="closed")

        @stock.step
        def reserve(order: str, token: UUID, at: str) -> str:
            if self.is_empty:
                raise Permanent("out of stock", code="none")
            self.books.append(f"reserve {order} {token}")
            return "shelf"

        @reserve.compensation
        def release(undo: Undo[str], order: str, token: UUID, at: str) -> None:
            self.books.append("release")

        @self.app.workflow
        async def pack(order: str) -> str:
            self.books.append(f"pack {order}")
            return "box"

        @self.app.workflow(supervision=Supervision(then="hold"))
        async def fulfil(order: str) -> str:
            began = str(arriero.now())
            receipt = await charge(order, arriero.uuid())
            answer = await approved.wait()
            try:
                await look(order)
            except StepFailed as failed:
                answer += f" {failed.code}"
            box = await pack(order)
            await arriero.sleep(self.seconds)
            await reserve(order, arriero.uuid(), began)
            return f"{receipt} {answer} {box}"

        self.fulfil, self.pack = fulfil, pack
