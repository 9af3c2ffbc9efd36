// The time line of a message: what has happened to it, what it does now, and what comes next.

import type { ComponentChildren } from "preact";
import type { Fields } from "../api";
import { ago, duration, plural } from "../format";
import { Badge, Time } from "../ui";
import type { Tone } from "../ui";
import { maps, maybe, num, text } from "../value";

/** Step is a line of it. */
interface Step {
	name: string;
	tone: Tone;
	at: number; // by which it has its place
	word?: string; // what is shown in place of a time that is not known
	detail?: ComponentChildren;
	error?: string;
}

const by = (consumer: Fields[string] | undefined) => (text(consumer) === "" ? "a consumer without a name" : `consumer ${text(consumer)}`);

/** attempts are those that have failed, of which the broker keeps the last ten, and the redrives between them. */
function attempts(m: Fields): Step[] {
	const all: Step[] = [];
	const died = num(m.died_at);
	let before: Fields | undefined;
	for (const a of maps(m.attempts)) {
		const n = num(a.attempt);
		if (before === undefined && n > 1) {
			all.push({ name: plural(n - 1, "earlier attempt"), tone: "quiet", word: "before", detail: "no longer known", at: num(a.from) });
		} else if (before && n <= num(before.attempt) && !(num(before.to) <= died && died <= num(a.from))) {
			all.push({ name: "Redriven", tone: "quiet", word: "then", detail: "its attempts begin again", at: num(a.from) });
		}
		const expired = text(a.outcome) === "expired";
		all.push({
			name: `Attempt ${n} ${expired ? "expired" : "failed"}`, tone: expired ? "wait" : "bad", at: num(a.from),
			detail: `${by(a.consumer)}, after ${duration(num(a.to) - num(a.from))}`, error: text(a.error),
		});
		before = a;
	}
	if (before === undefined && maybe(m.last_failed_at) !== null) {
		all.push({ name: "Failed", tone: "bad", at: num(m.last_failed_at) });
	}
	return all;
}

/** past are the steps that a message has behind it. */
function past(m: Fields): Step[] {
	const all: Step[] = [{ name: "Enqueued", tone: "quiet", at: num(m.enqueued_at) }, ...attempts(m)];
	const first = maybe(m.first_leased_at);
	const leased = text(m.status) === "leased" && num(m.deliveries) === 1;
	if (first !== null && !leased && !maps(m.attempts).some((a) => num(a.from) === first)) {
		all.push({ name: "First leased", tone: "busy", at: first, detail: num(m.deliveries) === 1 ? by(m.consumer) : undefined });
	}
	if (maybe(m.died_at) !== null) {
		all.push({ name: "Died", tone: "bad", at: num(m.died_at), detail: `in ${text(m.origin)}: ${text(m.reason)}` });
	}
	const failed = num(m.attempt) - 1;
	if (text(m.status) === "done") {
		if (failed > 0) {
			all.push({ name: `${plural(failed, "attempt")} failed`, tone: "bad", at: num(m.acked_at), word: "then", detail: "which is not kept of a message that is done" });
		}
		all.push({ name: "Acked", tone: "good", at: num(m.acked_at), detail: by(m.consumer) });
	}
	return all.sort((a, b) => a.at - b.at);
}

/** present are the state of a message and what it waits for. */
function present(m: Fields): Step[] {
	const attempt = num(m.attempt) > 1 ? `Attempt ${num(m.attempt)}` : "";
	const all: Step[] = [];
	switch (text(m.status)) {
		case "leased": {
			const until = num(m.lease_until);
			const at = num(m.deliveries) === 1 ? num(m.first_leased_at) : 0;
			all.push({ name: attempt === "" ? "Leased" : `${attempt} leased`, tone: "busy", at, word: at > 0 ? undefined : "now", detail: <>{by(m.consumer)}, until <Time at={until} /> ({ago(until)}){text(m.progress) !== "" && <>: <strong>{text(m.progress)}</strong></>}</> });
			return all;
		}
		case "delayed":
			all.push({ name: attempt === "" ? "Delayed until" : `${attempt} delayed until`, tone: "quiet", at: num(m.ready_at), detail: ago(maybe(m.ready_at)) });
			break;
		case "ready":
			all.push({ name: attempt === "" ? "Ready" : `${attempt} ready`, tone: "ready", at: 0, word: "now" });
			break;
		default:
			return all;
	}
	if (maybe(m.expires_at) !== null) {
		all.push({ name: "Expires", tone: "wait", at: num(m.expires_at), detail: `${ago(maybe(m.expires_at))}, unless it is delivered before` });
	}
	return all;
}

export function TimeLine({ m }: { m: Fields }) {
	const steps = [...past(m), ...present(m)];
	return (
		<>
			<h3>Time line</h3>
			<ol class="timeline">
				{steps.map((s, i) => {
					const last = steps.slice(0, i).findLast((o) => o.word === undefined)?.at;
					const after = s.word === undefined && last && s.at > last ? `+${duration(s.at - last)}` : "";
					return (
						<li key={i} class={s.tone}>
							<span class="when">{s.word ?? <Time at={s.at} />} <small>{after}</small></span>
							<span class="what">
								<Badge tone={s.tone}>{s.name}</Badge>
								{s.detail && <span>{s.detail}</span>}
								{s.error && <span class="error">{s.error}</span>}
							</span>
						</li>
					);
				})}
			</ol>
		</>
	);
}
