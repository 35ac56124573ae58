// Part of freeze.js.
// ---- motion: CSS animations, transitions and Web Animations stand still, and are moved with the clock
const held = new Map(); // animation -> the clock's time of its zero
let looked = -1;
let transitions = 0; // view transitions under way: what moves in them shows in no document's mutations
let drawing = null; // the frame in which the page gets the events of ended animations
// Waits for two frames. Resolves to whether they were drawn.
const frame = () => new Promise((done) => {
  if (!isWindow || !native.raf || document.visibilityState === "hidden") { hop().then(() => done(false)); return; }
  native.setTimeout(() => done(false), frameLimit); // a hidden frame is not drawn
  native.raf(() => native.raf(() => hop().then(() => done(true))));
});
let changed = () => {}, watchMotion = () => {}, parsed = () => {}, adopt = async () => {}, nextInMotion = () => Infinity, keepUp = () => {};
if (isWindow && G.Animation && document.getAnimations) {
  const proto = Animation.prototype;
  const time = Object.getOwnPropertyDescriptor(proto, "currentTime");
  const state = Object.getOwnPropertyDescriptor(proto, "playState");
  const own = { play: proto.play, pause: proto.pause, finish: proto.finish };
  const said = new WeakMap(); // animation -> its current time, as last set by the page or by us
  const at = (animation) => { const value = said.get(animation); return value === undefined ? 0 : value; };
  const put = (animation, value) => { said.set(animation, value); time.set.call(animation, value); };
  const end = (animation) => animation.effect ? Number(animation.effect.getComputedTiming().endTime) : 0;
  const standStill = (animation) => {
    own.pause.call(animation);
    put(animation, at(animation));
    held.set(animation, clock - at(animation) / animation.playbackRate);
  };
  getter(proto, "playState", function (get) { return held.has(this) ? "running" : get(); });
  getter(proto, "startTime", function (get) {
    return held.has(this) ? held.get(this) - config.start : state.get.call(this) === "running" ? elapsed() : get();
  });
  Object.defineProperty(proto, "currentTime", { ...time,
    get() { return !held.has(this) && state.get.call(this) === "running" && this.timeline === document.timeline ? at(this) : time.get.call(this); },
    set(value) {
      time.set.call(this, value);
      said.set(this, Number(time.get.call(this)) || 0);
      if (held.has(this)) held.set(this, clock - at(this) / this.playbackRate);
    } });
  for (const name of ["play", "pause", "reverse", "cancel", "finish", "updatePlaybackRate"])
    stand(proto, name, (f, self, args) => {
      const was = held.has(self);
      if (was && name === "play") return undefined;
      held.delete(self);
      looked = -1;
      const answer = Reflect.apply(f, self, args);
      if (name === "reverse" || name === "finish") said.set(self, Number(time.get.call(self)) || 0);
      if (name === "cancel") said.delete(self);
      if (was && name === "updatePlaybackRate") own.play.call(self);
      return answer;
    });
  const begun = (animation) => !held.has(animation) && animation.timeline === document.timeline &&
    state.get.call(animation) === "running" && animation.playbackRate;
  const sweep = () => {
    let fresh = false;
    for (const root of roots)
      for (const animation of root.getAnimations()) if (begun(animation)) { standStill(animation); fresh = true; }
    return fresh;
  };
  // Runs within a frame and before it is drawn: nothing can have moved yet.
  let watching = false;
  const watch = () => {
    if (watching || !native.raf) return;
    watching = true;
    native.raf(() => { watching = false; parsed(); sweep(); if (document.readyState !== "complete") watch(); });
  };
  watch();
  changed = watch;
  watchMotion = (root) => { for (const name of ["animationstart", "transitionrun"]) listen(root, name, sweep, true); };
  stand(Element.prototype, "animate", (f, self, args) => {
    const animation = Reflect.apply(f, self, args);
    if (begun(animation)) standStill(animation);
    return animation;
  });
  // Stops what has begun to move. Waits for the frame in which the page is told of it.
  adopt = async () => {
    if (drawing) { await drawing; drawing = null; }
    if (looked === mutations && !transitions) return;
    looked = mutations;
    if (sweep()) await frame();
  };
  nextInMotion = () => {
    let least = Infinity;
    for (const [animation, nought] of held)
      if (animation.playbackRate > 0 && state.get.call(animation) !== "idle") least = Math.min(least, nought + end(animation) / animation.playbackRate);
    return least;
  };
  // Moves everything to the clock's time. Events of ended animations come in the next frame, which is waited for.
  keepUp = () => {
    let ended = false;
    for (const [animation, nought] of [...held]) {
      if (state.get.call(animation) === "idle") { held.delete(animation); continue; } // its element is gone
      const value = (clock - nought) * animation.playbackRate;
      const over = animation.playbackRate > 0 ? value >= end(animation) : value <= 0;
      put(animation, over ? Math.max(0, Math.min(value, end(animation))) : value);
      if (!over) continue;
      held.delete(animation);
      if (end(animation) !== Infinity) own.finish.call(animation);
      ended = true;
    }
    if (ended) drawing = frame().then(() => { looked = -1; });
  };
}
if (G.HTMLMarqueeElement) stand(HTMLMarqueeElement.prototype, "start", () => undefined); // its motion can't be seen or set, so it stands still
