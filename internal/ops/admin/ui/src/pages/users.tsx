import { useState } from "preact/hooks";
import { run } from "../api";
import type { Bytes, Fields } from "../api";
import { CommandLine } from "../action";
import { refusalOf, useApp, useReply, useTitle } from "../app";
import { duration } from "../format";
import { refine } from "../route";
import type { Route } from "../route";
import { Badge, Card, Code, Empty, Facts, Failure, Loading, Page, Table } from "../ui";
import { bytes, key, list, maps, num, text } from "../value";

/** Users are shown, not changed: rights are better kept in a file. */
export function Users({ route }: { route: Route }) {
	useTitle("Users");
	const app = useApp();
	const why = app.may({ command: "ACL USERS" });
	const asked = useReply(why === "" ? ["ACL", "USERS"] : null, 10_000);
	const users = list(asked.data).map(bytes);
	const [chosen, choose] = [route.query.get("user"), (u: string) => refine(route, { user: u })];
	const user = users.find((u) => text(u) === chosen) ?? users[0];
	return (
		<Page title="Users" sub={<span>What each user may do. Users are changed by <code>ACL SETUSER</code>, or in the configuration.</span>}>
			{why !== "" ? (
				<Card title={app.session.user}><Empty title="You may not see the users.">This {why}. What you may do yourself:</Empty><Mine /></Card>
			) : (
				<div class="columns">
					<Card title="Users">
						<Failure error={asked.error} />
						{asked.data === undefined ? !asked.error && <Loading /> : (
							<ul class="pick">{users.map((u) => <li key={key(u)}><button type="button" aria-pressed={u === user} onClick={() => choose(text(u))}>{text(u)}{text(u) === app.session.user && <small> you</small>}</button></li>)}</ul>
						)}
					</Card>
					{user !== undefined && <User key={key(user)} user={user} />}
				</div>
			)}
			<Log />
		</Page>
	);
}

function Mine() {
	const { session } = useApp();
	return <Facts facts={[["Queues", words(session.queues)], ["Channels", session.channels || "none"], ["Commands", `${Object.values(session.commands).filter(Boolean).length} of ${Object.keys(session.commands).length}`]]} />;
}

/** words says what patterns of queues give. */
function words(patterns: string): string {
	const all: string[] = [];
	for (const rule of patterns.split(" ").filter(Boolean)) {
		const m = /^(?:%(RW|WR|R|W))?~(.*)$/s.exec(rule);
		if (m) {
			const what = m[1] === "R" ? "consume from" : m[1] === "W" ? "produce to" : "consume from and produce to";
			all.push(`${what} ${m[2] === "*" ? "every queue" : m[2]}`);
		}
	}
	return all.join("; ") || "no queue";
}

function User({ user }: { user: Bytes }) {
	const app = useApp();
	const why = app.may({ command: "ACL GETUSER" });
	const asked = useReply(why === "" ? ["ACL", "GETUSER", user] : null, 10_000);
	const u = asked.data as Fields | null | undefined;
	if (why !== "") {
		return <Card title={text(user)}><Empty title="You may not see the rights.">This {why}.</Empty></Card>;
	}
	if (!u) {
		return <Card title={text(user)}>{asked.error ? <Failure error={asked.error} /> : <Loading />}</Card>;
	}
	const flags = list(u.flags).map(text);
	const passwords = list(u.passwords).length;
	return (
		<Card title={<>{text(user)} <Badge tone={flags.includes("on") ? "good" : "quiet"}>{flags.includes("on") ? "on" : "off"}</Badge></>}>
			<Facts facts={[
				["Queues", words(text(u.keys))],
				["Channels", text(u.channels) === "&*" ? "every channel" : text(u.channels) || "none"],
				["Password", flags.includes("nopass") ? "needs none" : passwords === 0 ? "has none: cannot log in" : `${passwords}`],
			]} />
			<h3>Commands</h3>
			<p><Code>{text(u.commands)}</Code></p>
			<May user={user} />
		</Card>
	);
}

/** May asks whether a user may run a command. */
function May({ user }: { user: Bytes }) {
	const app = useApp();
	const why = app.may({ command: "ACL DRYRUN" });
	const [line, set] = useState("");
	const [answer, say] = useState<{ good: boolean; text: string }>();
	const command: Bytes[] = ["ACL", "DRYRUN", user, ...line.trim().split(/\s+/).filter(Boolean)];
	const ask = async () => {
		try {
			const reply = text(await run(command));
			say({ good: reply === "OK", text: reply === "OK" ? "Yes." : reply });
		} catch (e) {
			say({ good: false, text: refusalOf(e).text });
		}
	};
	return (
		<form class="may" onSubmit={(e) => {
			e.preventDefault();
			void ask();
		}}>
			<h3>May {text(user)} do this?</h3>
			<div class="pair">
				<input aria-label="Command to ask about" value={line} placeholder="FILA.QUEUE PAUSE orders" spellcheck={false} onInput={(e) => {
					set(e.currentTarget.value);
					say(undefined);
				}} />
				<button type="submit" disabled={why !== "" || line.trim() === ""} title={why}>Ask</button>
			</div>
			<div role="status">{answer && <p class={answer.good ? "success" : "failure"}>{answer.text}</p>}</div>
			{line.trim() !== "" && <CommandLine words={command} />}
		</form>
	);
}

function Log() {
	const app = useApp();
	const why = app.may({ command: "ACL LOG" });
	const asked = useReply(why === "" ? ["ACL", "LOG", "128"] : null, 5000);
	if (why !== "") {
		return null;
	}
	return (
		<Card title="Refused" note="commands, queues, channels and passwords, the newest first">
			<Failure error={asked.error} />
			<Table caption="Refused" rows={maps(asked.data)} id={(e) => text(e["entry-id"]) || JSON.stringify(e)} empty={<Empty title="Nothing was refused." />} columns={[
				{ name: "Age", head: true, sort: (e) => num(e["age-seconds"]), cell: (e) => `${duration(num(e["age-seconds"]) * 1000)} ago` },
				{ name: "User", cell: (e) => text(e.username) },
				{ name: "Reason", cell: (e) => <Badge tone={text(e.reason) === "auth" ? "bad" : "wait"}>{text(e.reason)}</Badge> },
				{ name: "What", wide: true, cell: (e) => <Code>{text(e.object)}</Code> },
				{ name: "Times", right: true, sort: (e) => num(e.count), cell: (e) => text(e.count) },
				{ name: "From", cell: (e) => <span class="mono">{/\baddr=(\S+)/.exec(text(e["client-info"]))?.[1] ?? ""}</span> },
			]} />
		</Card>
	);
}
