// Parses queries with the grammars that Prometheus and Grafana ship for their editors.
// Reads a JSON list of {language, query}, writes a JSON list of what each parser did not understand.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(`${process.argv[2]}/`);
const parsers = {
  promql: require("@prometheus-io/lezer-promql").parser,
  logql: require("@grafana/lezer-logql").parser,
  traceql: require("@grafana/lezer-traceql").parser,
};

function complaints({ language, query }) {
  const found = [];
  parsers[language].parse(query).iterate({
    enter(node) {
      if (node.type.isError) found.push(`at ${node.from}: ${query.slice(node.from, node.to + 20)}`);
    },
  });
  return found;
}

console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf-8")).map(complaints)));
