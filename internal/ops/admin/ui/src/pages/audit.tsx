import { exactTime } from "../format";
import { num, text } from "../value";
import { Empty, Time } from "../ui";
import type { Route } from "../route";
import { List } from "./listing";

/** Audit is the log of what administrators have changed. */
export function Audit({ route }: { route: Route }) {
	return (
		<List route={route} of={{
			title: "Audit log", what: "the audit log", words: ["FILA.AUDIT"], command: "FILA.AUDIT",
			sub: "The last 1,000 administrative commands that have changed something, the newest first.", id: (a) => text(a.number),
			empty: <Empty title="Nothing has been changed yet." />,
			columns: () => [
				{ name: "At", head: true, cell: (a) => <Time at={num(a.at)} /> },
				{ name: "User", cell: (a) => text(a.user) },
				{ name: "From", cell: (a) => <span class="mono">{text(a.addr)}</span> },
				{ name: "Command", cell: (a) => <span class="mono">{text(a.command)}</span> },
				{ name: "Object", wide: true, cell: (a) => <span class="mono">{text(a.object)}</span> },
				{ name: "Before", wide: true, cell: (a) => <Setting text={text(a.before)} /> },
				{ name: "After", wide: true, cell: (a) => <Setting text={text(a.after)} /> },
			],
		}} />
	);
}

function Setting({ text }: { text: string }) {
	return text === "" ? <span class="zero">–</span> : <span class="mono">{text.replace(stamp, (_, name: string, at: string) => `${name}=${exactTime(Number(at))}`)}</span>;
}

/** stamp is a field of a setting that says when. */
const stamp = /\b(\w+_(?:at|until))=(\d{12,})/g;
