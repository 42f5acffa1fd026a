// Follows a run: when the server reports a change, the page is fetched again, and the parts that differ are replaced.
"use strict";
(() => {
  const LIVE = "[data-live], #warnings, nav[aria-label=contents], main > section[id]";
  const LEAST_BETWEEN = 1000, LEAST_BETWEEN_WORDS = 10000; // milliseconds
  const byId = (id) => document.getElementById(id);
  const connection = byId("connection");
  let source = null, retry = 0, last = 0, waiting = 0;

  // The parts as the server sent them: this script changes times and hints, and a reader opens details.
  const sent = new Map();
  const liveParts = (root) => [...root.querySelectorAll(LIVE)].filter((part) => part.id || part.matches("nav"));
  const nameOf = (part) => part.id || "contents";
  const remember = () => {
    sent.clear();
    for (const part of liveParts(document)) sent.set(nameOf(part), part.outerHTML);
  };

  // A screen reader reads this aloud: a new state at once, the generations of a fast search only now and then.
  let said = 0;
  function announce(text) {
    const place = byId("announcement"), stateIn = (words) => words.split(":")[0];
    if (!text || place.textContent === text) return;
    if (stateIn(place.textContent) === stateIn(text) && Date.now() - said < LEAST_BETWEEN_WORDS) return;
    place.textContent = text;
    said = Date.now();
  }

  // What a reader did to a part: opened details, chosen boxes, the focus and how far a table is scrolled.
  function stateOf(part) {
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    return {
      open: [...part.querySelectorAll("details")].map((one) => one.open),
      chosen: [...part.querySelectorAll("input:checked")].map((one) => one.value),
      typed: [...part.querySelectorAll("input[type=password], input[type=search]")].map((one) => one.value),
      scrolled: [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft),
      focus: focused && (focused.id ? `#${CSS.escape(focused.id)}`
        : focused.getAttribute("href") ? `[href="${CSS.escape(focused.getAttribute("href"))}"]`
        : focused.getAttribute("formaction") ? `[formaction="${CSS.escape(focused.getAttribute("formaction"))}"]`
        : focused.name ? `[name="${CSS.escape(focused.name)}"]` : null),
    };
  }

  function restore(part, state) {
    part.querySelectorAll("details").forEach((one, place) => { one.open = state.open[place] ?? one.open; });
    part.querySelectorAll("input[type=checkbox]").forEach((one) => { one.checked = state.chosen.includes(one.value); });
    part.querySelectorAll("input[type=password], input[type=search]").forEach((one, place) => {
      one.value = state.typed[place] ?? one.value;
    });
    part.querySelectorAll(".scroll").forEach((one, place) => { one.scrollLeft = state.scrolled[place] ?? 0; });
    if (state.focus) part.querySelector(state.focus)?.focus({ preventScroll: true });
  }

  function replace(old, fresh) {
    const state = stateOf(old), part = document.importNode(fresh, true);
    old.replaceWith(part);
    restore(part, state);
    unlock();
  }

  function update(fresh) {
    document.title = fresh.title;
    const parts = liveParts(fresh);
    const isSame = parts.length === sent.size && parts.every((part) => sent.has(nameOf(part)));
    if (isSame) {
      const old = new Map(liveParts(document).map((part) => [nameOf(part), part]));
      for (const part of parts) {
        const text = part.outerHTML;
        if (text !== sent.get(nameOf(part))) {
          replace(old.get(nameOf(part)), part);
          sent.set(nameOf(part), text);
        }
      }
    } else {
      const texts = parts.map((part) => [nameOf(part), part.outerHTML]);
      replace(byId("content"), fresh.getElementById("content"));
      sent.clear();
      for (const [name, text] of texts) sent.set(name, text);
    }
    announce(fresh.querySelector("[data-announce]")?.textContent);
    showTimes();
  }

  async function refresh() {
    waiting = 0;
    last = Date.now();
    try {
      const answer = await fetch(location.href, { cache: "no-cache" });
      if (!answer.ok) return;
      if (answer.headers.has("X-Evomal-Stale")) setTimeout(refreshSoon, 2000);
      update(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch { /* the connection says so */ }
  }

  function refreshSoon() {
    if (!waiting) waiting = setTimeout(refresh, Math.max(0, last + LEAST_BETWEEN - Date.now()));
  }

  function say(text, name) {
    connection.textContent = text;
    connection.dataset.state = name;
  }

  // A browser opens at most six connections to a server, so only a visible page holds one.
  function connect() {
    clearTimeout(retry);
    const of = document.body.dataset.events;
    if (!of || source || document.visibilityState === "hidden") return;
    source = new EventSource(`/events?of=${encodeURIComponent(of)}`);
    source.onopen = () => say("live", "live");
    source.onmessage = refreshSoon;
    source.onerror = () => {
      say("connection lost, trying again", "lost");
      if (source && source.readyState === EventSource.CLOSED) {
        disconnect();
        retry = setTimeout(connect, 3000);
      }
    };
  }

  function disconnect() {
    source?.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") disconnect();
    else { showTimes(); connect(); }
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);

  function span(seconds) {
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
    return `${Math.round(seconds / 86400)} days`;
  }

  function showTimes() {
    for (const one of document.querySelectorAll("time[data-since], time[data-until]")) {
      const moment = Date.parse(one.dateTime), until = "until" in one.dataset;
      if (Number.isNaN(moment)) continue;
      const seconds = (until ? moment - Date.now() : Date.now() - moment) / 1000;
      one.title = one.dateTime;
      one.textContent = until ? (seconds > 0 ? `about ${span(seconds)} left` : "soon") : `${span(Math.max(0, seconds))} ago`;
    }
  }

  // The token comes with the address that the server printed, or is typed once for this tab.
  const TOKEN = "evomal-token";
  const brought = new URLSearchParams(location.hash.slice(1)).get("token");
  if (brought) {
    sessionStorage.setItem(TOKEN, brought);
    history.replaceState(null, "", location.pathname + location.search);
  }

  function unlock() {
    const token = sessionStorage.getItem(TOKEN);
    for (const form of document.querySelectorAll("[data-actions]")) {
      form.classList.toggle("unlocked", Boolean(token));
      if (token) form.elements.token.value = token;
    }
  }

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("[data-actions]") || !event.submitter) return;
    event.preventDefault();
    const token = form.elements.token.value, button = event.submitter;
    button.disabled = true;
    let sentence = "The server cannot be reached.";
    try {
      const answer = await fetch(button.formAction, { method: "POST", headers: { "X-Evomal-Token": token } });
      sentence = (await answer.json()).sentence;
      if (answer.status === 403) sessionStorage.removeItem(TOKEN);
      else sessionStorage.setItem(TOKEN, token);
    } catch { /* the sentence says so */ }
    await refresh();
    unlock();
    button.disabled = false;
    const note = byId("answer");
    if (note) note.textContent = sentence;
    announce(sentence);
  });

  function hint(event) {
    const point = event.target.closest?.("[data-hint]");
    const place = event.target.closest?.("figure")?.querySelector(".hint");
    if (place) place.textContent = point ? point.dataset.hint : place.dataset.usual;
  }
  document.addEventListener("pointerover", hint);
  document.addEventListener("focusin", hint);

  remember();
  unlock();
  showTimes();
  setInterval(showTimes, 1000);
  connect();
})();
