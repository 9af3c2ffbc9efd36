// Consumers of a queue: which clients wait for its messages, and which hold leases.

import { useState } from "preact/hooks";
import type { Bytes, Fields } from "../api";
import { useApp, useReply } from "../app";
import { ago, count, duration, plural } from "../format";
import { to } from "../route";
import { Card, Empty, Failure, Loading, Pager, Table } from "../ui";
import { maybe, num, page, text } from "../value";

const shownMax = 200;

/** Consumers lists the clients that wait and those that hold leases, in the order in which they came. */
export function Consumers({ queue, q }: { queue: Bytes; q: Fields }) {
	const why = useApp().may({ command: "FILA.WAITERS", queue, access: "consume" });
	const [cursor, setCursor] = useState<Bytes>("0");
	const asked = useReply(why === "" ? ["FILA.WAITERS", queue, "CURSOR", cursor, "COUNT", String(shownMax)] : null, 2000);
	const { next, items } = page(asked.data);
	const none = <span class="zero">–</span>;
	return (
		<Card title={`${plural(num(q.waiters), "waiting client")}, ${plural(num(q.leased), "lease")}`} note="consumers that wait or hold leases, in the order in which they came">
			<Failure error={asked.error} />
			{why !== "" ? <Empty title="You may not see the consumers.">This {why}.</Empty>
				: asked.data === undefined ? !asked.error && <Loading /> : (
					<Table caption="Consumers" rows={items} id={(w) => `${text(w.id)} ${text(w.consumer)}`} empty={<Empty title="No client waits for messages or holds leases.">Those that ask without waiting are here while they hold leases.</Empty>} columns={[
						{ name: "Consumer", head: true, wide: true, sort: (w) => text(w.consumer), cell: (w) => text(w.consumer) || "(without a name)" },
						{ name: "Leases", right: true, sort: (w) => num(w.leases), cell: (w) => (num(w.leases) > 0 ? count(num(w.leases)) : none) },
						{ name: "Oldest lease", hint: "For how long it holds the oldest of its leases", right: true, sort: (w) => num(w.oldest_lease_ms), cell: (w) => (num(w.leases) > 0 ? duration(maybe(w.oldest_lease_ms)) : none) },
						{ name: "Waits", right: true, hint: "For how many queues it waits, and until when", sort: (w) => num(w.queues), cell: (w) => (num(w.queues) === 0 ? none : <>{plural(num(w.queues), "queue")}, {w.until === null ? "until it gets a message" : ago(maybe(w.until))}</>) },
						{ name: "Address", cell: (w) => <span class="mono">{text(w.addr) || "gone"}</span> },
						{ name: "Name", wide: true, sort: (w) => text(w.name), cell: (w) => text(w.name) || none },
						{ name: "User", sort: (w) => text(w.user), cell: (w) => text(w.user) },
						{ name: "Last command", right: true, sort: (w) => num(w.idle_ms), cell: (w) => duration(maybe(w.idle_ms)) },
					]} />
				)}
			<Pager what="consumers" first={cursor === "0"} next={text(next) !== "0"} onFirst={() => setCursor("0")} onNext={() => setCursor(next)} />
			{num(q.leased) > 0 && <p class="caption"><a href={to(["queues", queue, "messages"], { status: "leased" })}>The leased messages</a>. A consumer has the name that its leases give: <code>CONSUMER</code> of <code>FILA.LEASE</code>.</p>}
		</Card>
	);
}
