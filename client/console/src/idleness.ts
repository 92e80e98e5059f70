// Tells when nobody has used the page for a while, also where timers slept with the machine.

const LOOK_MS = 5_000;
const SIGNS = ["pointerdown", "pointermove", "keydown", "wheel", "touchstart"] as const;

/** Calls `idle` once nobody touched the page for as long as `limitMs` says. */
export function watchIdleness(limitMs: () => number, idle: () => void): void {
  let last = Date.now();
  const look = (): void => {
    if (Date.now() - last < limitMs()) return;
    last = Date.now();
    idle();
  };
  const touch = (): void => {
    look(); // what wakes a machine that slept for an hour is no sign that somebody was there
    last = Date.now();
  };
  for (const sign of SIGNS) window.addEventListener(sign, touch, { passive: true, capture: true });
  document.addEventListener("visibilitychange", look);
  setInterval(look, LOOK_MS);
}
