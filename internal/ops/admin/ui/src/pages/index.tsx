// Which page an address names.

import type { ComponentChildren } from "preact";
import type { Route } from "../route";
import { Empty, Page } from "../ui";
import { key } from "../value";
import { Audit } from "./audit";
import { Budgets } from "./budgets";
import { Clients } from "./clients";
import { Configuration } from "./config";
import { Cron, Crons } from "./crons";
import { Events } from "./events";
import { Groups } from "./groups";
import { Latency } from "./latency";
import { Overview } from "./overview";
import { Queue } from "./queue";
import { Signals } from "./signals";
import { SlowLog } from "./slowlog";
import { ThrottlePage } from "./throttle";
import { Throttles } from "./throttles";
import { Topics } from "./topics";
import { Users } from "./users";

export function pageOf(route: Route): ComponentChildren {
	const [place = "", , part = ""] = route.path;
	const name = route.names[1];
	switch (place) {
		case "":
			return <Overview route={route} />;
		case "queues":
			return name === undefined ? <Overview route={route} /> : <Queue key={key(name)} queue={name} route={route} part={part} />;
		case "topics":
			return <Topics route={route} />;
		case "groups":
			return <Groups route={route} />;
		case "throttles":
			return name === undefined ? <Throttles route={route} /> : <ThrottlePage key={key(name)} name={name} route={route} />;
		case "budgets":
			return <Budgets route={route} />;
		case "signals":
			return <Signals route={route} />;
		case "crons":
			return name === undefined ? <Crons route={route} /> : <Cron key={key(name)} name={name} />;
		case "events":
			return <Events route={route} />;
		case "clients":
			return <Clients route={route} />;
		case "slowlog":
			return <SlowLog />;
		case "latency":
			return <Latency />;
		case "config":
			return <Configuration route={route} />;
		case "users":
			return <Users route={route} />;
		case "audit":
			return <Audit route={route} />;
	}
	return <Page title="Not found"><Empty title="There is no such page.">Choose one in the menu.</Empty></Page>;
}
