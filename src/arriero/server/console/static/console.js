/* What the console's pages do beside htmx. Without this file each page can still be read and each form sent. */
"use strict";
(() => {
  const twoDigits = (number) => String(number).padStart(2, "0");

  /* Instants in the zone of the reader; the store's clock stays in the title. */
  function showTimes(part) {
    const today = new Date().toDateString();
    for (const one of part.querySelectorAll("time[datetime]")) {
      const at = new Date(one.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const day = `${at.getFullYear()}-${twoDigits(at.getMonth() + 1)}-${twoDigits(at.getDate())}`;
      const time = `${twoDigits(at.getHours())}:${twoDigits(at.getMinutes())}:${twoDigits(at.getSeconds())}`;
      const text = one.dataset.form === "short" && at.toDateString() === today ? time : `${day} ${time}`;
      if (one.textContent !== text) one.textContent = text;
    }
  }

  /* A line above the page while it may be behind. */
  const behind = document.getElementById("behind");
  let shownAt = new Date();
  function sayBehind(text, path, link) {
    behind.hidden = !text;
    behind.textContent = text;
    if (text && path) {
      const anchor = document.createElement("a");
      anchor.href = path;
      anchor.textContent = link;
      behind.append(" ", anchor);
    }
  }
  function sayNotConnected() {
    sayBehind(`Not connected: this page shows how things stood at ${clock()}. It reconnects by itself.`);
  }
  const clock = () => `${twoDigits(shownAt.getHours())}:${twoDigits(shownAt.getMinutes())}:${twoDigits(shownAt.getSeconds())}`;
  const here = () => location.pathname + location.search;
  const root = document.body.dataset.root;

  /* The stream of events says when the page is behind. While it is broken, an answer to the page itself says why. */
  let isConnected = true, isRefused = false, askedAt = 0;
  document.addEventListener("htmx:sseError", () => {
    isConnected = false;
    if (isRefused) return;
    sayNotConnected();
    if (Date.now() - askedAt > 2000) askAgain();
  });
  document.addEventListener("htmx:sseOpen", () => {
    const wasConnected = isConnected;
    isConnected = true;
    isRefused = false;
    if (!wasConnected) askAgain();
  });
  function askAgain() {
    const asks = document.querySelector("#live [hx-get]");
    askedAt = Date.now();
    if (asks && window.htmx) htmx.trigger(asks, "again");
  }
  document.addEventListener("htmx:sendError", sayNotConnected);
  document.addEventListener("htmx:responseError", (event) => {
    const status = event.detail.xhr.status;
    isRefused = status === 401 || status === 403 || status === 404;
    if (status === 401) sayBehind(`You are signed out: this page shows how things stood at ${clock()}.`, `${root}/sign-in?next=${encodeURIComponent(here())}`, "Sign in");
    else if (isRefused) sayBehind(`What this page shows was purged or is out of reach. It stood like this at ${clock()}.`, `${root}/`, "Overview");
    else sayBehind(`The page could not be brought up to date (${status}): it shows how things stood at ${clock()}.`, here(), "Load it again");
  });
  document.addEventListener("htmx:afterSettle", () => {
    shownAt = new Date();
    if (isConnected) sayBehind("");
    showTimes(document);
  });

  /* A release changes the files of the console: the page is loaded anew. */
  document.addEventListener("htmx:beforeSwap", (event) => {
    const found = /data-edition="([0-9a-f]+)"/.exec(event.detail.serverResponse || "");
    if (found && found[1] !== document.body.dataset.edition) {
      event.detail.shouldSwap = false;
      location.reload();
    }
  });

  /* A filter in which somebody types, and what was unfolded, stay as they are while the page is brought up to date. */
  if (window.Idiomorph) {
    const callbacks = Idiomorph.defaults.callbacks;
    callbacks.beforeNodeMorphed = (before) => !(before instanceof Element && before.matches("form.filter, form.jump"));
    callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.tagName === "DETAILS");
  }

  /* A second click on the same form does nothing. */
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.sent) { event.preventDefault(); return; }
    if (form.method !== "post") return;
    form.dataset.sent = "true";
    setTimeout(() => { for (const button of form.querySelectorAll("button")) button.disabled = true; });
  });
  addEventListener("pageshow", (event) => {
    for (const form of document.querySelectorAll("form[data-sent]")) {
      delete form.dataset.sent;
      for (const button of form.querySelectorAll("button")) button.disabled = false;
    }
    if (event.persisted) askAgain();
  });

  /* Keys: / to the filter, j and k through the rows. */
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    if (event.key === "/") {
      const field = document.querySelector(".filter input, .filter select");
      if (field) { event.preventDefault(); field.focus(); }
    } else if (event.key === "j" || event.key === "k") {
      const links = [...document.querySelectorAll("main tbody th a, main .rows a.row")];
      if (!links.length) return;
      const at = links.indexOf(document.activeElement);
      links[Math.min(links.length - 1, Math.max(0, event.key === "j" ? at + 1 : at - 1))].focus();
      event.preventDefault();
    }
  });

  /* A link that a command prints carries the token behind #, which browsers send to no server. */
  const token = document.querySelector("input[name=token]");
  if (token && location.hash.length > 1) {
    token.value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", here());
    token.form.querySelector("button").focus();
  }

  showTimes(document);
})();
