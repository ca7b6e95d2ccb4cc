"""Pages of the console as a browser without scripts gets them: cookies are kept, redirects followed, forms filled and sent."""

from html.parser import HTMLParser
from urllib.parse import urlencode

import httpx2


class Form:
    """A form of a page: where it goes, and what its fields hold."""

    def __init__(self, action: str, method: str) -> None:
        self.action, self.method = action, method
        self.fields: dict[str, str] = {}
        self.repeated: list[tuple[str, str]] = []  # further values of hidden fields
        self.buttons: set[str] = set()  # names of those that say which one was pressed


class PageReader(HTMLParser):
    """Reads text, links and forms out of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: dict[str, str] = {}  # by their text
        self.forms: list[Form] = []
        self._link: tuple[str, list[str]] | None = None
        self._area: tuple[str, list[str]] | None = None
        self._select = ""
        self._is_hidden = False
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._is_hidden = tag in ("script", "style", "title")
        if tag == "a" and "href" in given:
            self._link = (given["href"], [])
        elif tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get")))
        elif not self.forms:
            return
        elif tag == "button" and "name" in given:
            self.forms[-1].buttons.add(given["name"])
        elif tag == "input" and given.get("type") == "hidden" and given.get("name") in self.forms[-1].fields:
            self.forms[-1].repeated.append((given["name"], given.get("value", "")))
        elif tag == "input" and "name" in given and (given.get("type") != "checkbox" or "checked" in given):
            self.forms[-1].fields[given["name"]] = given.get("value", "")
        elif tag == "textarea":
            self._area = (given["name"], [])
        elif tag == "select":
            self._select = given["name"]
            self.forms[-1].fields[self._select] = ""
        elif tag == "option" and "selected" in given:
            self.forms[-1].fields[self._select] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        self._is_hidden = False
        if tag == "a" and self._link is not None:
            self.links[" ".join("".join(self._link[1]).split())] = self._link[0]
            self._link = None
        elif tag == "textarea" and self._area is not None:
            self.forms[-1].fields[self._area[0]] = "".join(self._area[1]).removeprefix("\n")  # as HTML says
            self._area = None

    def handle_data(self, data: str) -> None:
        if self._link is not None:
            self._link[1].append(data)
        if self._area is not None:
            self._area[1].append(data)
        if not self._is_hidden:
            self.words.append(data)

    def find_form(self, action: str) -> Form:
        """The form whose action begins so."""
        return next(form for form in self.forms if form.action.startswith(action))


class Browser:
    """A client that keeps cookies and shows pages."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.http.headers.pop("authorization", None)
        self.answer: httpx2.Response
        self.page: PageReader

    async def _show(self, answer: httpx2.Response) -> PageReader:
        while answer.status_code == 303:
            answer = await self.http.get(answer.headers["location"], headers={"accept": "text/html"})
        self.answer, self.page = answer, PageReader(answer.text)
        return self.page

    async def open(self, path: str) -> PageReader:
        return await self._show(await self.http.get(path, headers={"accept": "text/html"}))

    async def follow(self, link: str) -> PageReader:
        return await self.open(self.page.links[link])

    async def sign_in(self, token: str, path: str = "/") -> PageReader:
        await self.open(path)
        return await self.send("/sign-in", token=token)

    async def send(self, action: str, **fields: str) -> PageReader:
        """Send the form whose action begins so, with some fields filled in; ``field_reason`` is ``field.reason``."""
        form = self.page.find_form(action)
        named = {name.replace("field_", "field.", 1): value for name, value in fields.items()}
        known = {*form.fields, *form.buttons}
        assert all(name in known or name.startswith("field.") for name in named), form.fields
        body = urlencode([*{**form.fields, **named}.items(), *form.repeated])
        headers = {"content-type": "application/x-www-form-urlencoded"}
        return await self._show(await self.http.post(form.action, content=body, headers=headers))
