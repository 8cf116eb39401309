// Shows /openapi.json. Everything is put in as text, never as HTML.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Follows "#/components/schemas/Email".
function resolve(api, schema) {
  if (!schema || !schema.$ref) return schema;
  return schema.$ref.split("/").slice(1).reduce((at, name) => (at ? at[name] : undefined), api);
}

function typeName(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  const either = schema.oneOf || schema.anyOf;
  if (either) return either.map(typeName).join(" | ");
  if (schema.type === "array") return `${typeName(schema.items)}[]`;
  const type = [].concat(schema.type || "any").join(" | ");
  return schema.format ? `${type} (${schema.format})` : type;
}

// What a value looks like, a few levels deep.
function example(api, schema, depth = 0) {
  const found = resolve(api, schema);
  if (!found) return null;
  if (found.example !== undefined) return found.example;
  if (found.allOf) return Object.assign({}, ...found.allOf.map((part) => example(api, part, depth)));
  const either = found.oneOf || found.anyOf;
  if (either) return example(api, either.find((one) => one.type !== "null"), depth);
  const type = [].concat(found.type || "object")[0];
  if (type === "array") return depth > 4 ? [] : [example(api, found.items, depth + 1)];
  if (type === "object") {
    const fields = depth > 4 ? [] : Object.entries(found.properties || {});
    return Object.fromEntries(fields.map(([name, field]) => [name, example(api, field, depth + 1)]));
  }
  return { string: found.format || "text", integer: 0, number: 0, boolean: false }[type] ?? null;
}

function parameters(operation, inputs) {
  const all = operation.parameters || [];
  if (!all.length) return null;
  const rows = all.map((parameter) => {
    const input = element("input", { "aria-label": parameter.name });
    inputs.push([parameter, input]);
    const name = element("td", {}, element("code", {}, parameter.name), parameter.required ? " *" : "");
    const about = [typeName(parameter.schema), parameter.description].filter(Boolean).join(": ");
    return element("tr", {}, name, element("td", {}, parameter.in), element("td", {}, about), element("td", {}, input));
  });
  return element("table", {}, element("tbody", {}, ...rows));
}

function body(api, operation, inputs) {
  const json = operation.requestBody?.content?.["application/json"];
  if (!json) return null;
  const text = element("textarea", { "aria-label": "body" });
  text.value = JSON.stringify(example(api, json.schema), null, 2);
  inputs.push([{ in: "body" }, text]);
  return element("div", {}, element("p", {}, `Body: ${typeName(json.schema)}`), text);
}

function answers(api, operation) {
  const rows = Object.entries(operation.responses || {}).map(([status, answer]) => {
    const [type, content] = Object.entries(answer.content || {})[0] || ["", {}];
    const shown = element("td", {}, answer.description || "");
    if (content.schema) {
      const text = JSON.stringify(example(api, content.schema), null, 2);
      shown.append(element("details", {}, element("summary", {}, `${type} ${typeName(content.schema)}`), element("pre", {}, text)));
    }
    return element("tr", {}, element("td", {}, element("code", {}, status)), shown);
  });
  return element("table", {}, element("tbody", {}, ...rows));
}

async function send(method, path, inputs, out) {
  const headers = {};
  const query = new URLSearchParams();
  let sent;
  for (const [parameter, input] of inputs) {
    if (parameter.in === "body") {
      sent = input.value;
      headers["Content-Type"] = "application/json";
    } else if (input.value) {
      if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      if (parameter.in === "query") query.append(parameter.name, input.value);
      if (parameter.in === "header") headers[parameter.name] = input.value;
    }
  }
  const key = document.getElementById("key").value.trim();
  const tenant = document.getElementById("tenant").value.trim();
  if (key) headers.Authorization = `Bearer ${key}`;
  if (tenant) headers["X-Tenant-Id"] = tenant;
  const url = [...query].length ? `${path}?${query}` : path;
  out.hidden = false;
  out.textContent = `${method.toUpperCase()} ${url} …`;
  try {
    const answer = await fetch(url, { method: method.toUpperCase(), headers, body: sent });
    const type = answer.headers.get("Content-Type") || "";
    let text = "";
    if (type.includes("event-stream")) {
      text = "This response is a stream without an end; use curl -N.";
      answer.body.cancel();
    } else {
      text = await answer.text();
      if (type.includes("json")) text = JSON.stringify(JSON.parse(text), null, 2);
    }
    out.textContent = `${method.toUpperCase()} ${url}\n${answer.status} ${answer.statusText}\n\n${text.slice(0, 100000)}`;
  } catch (e) {
    out.textContent = `${method.toUpperCase()} ${url}\n${e}`;
  }
}

function operation(api, method, path, described) {
  const inputs = [];
  const out = element("pre", { hidden: "" });
  const button = element("button", { type: "button" }, "Send");
  button.addEventListener("click", () => send(method, path, inputs, out));
  const title = element("summary", {}, element("span", { class: `method ${method}` }, method.toUpperCase()),
    element("code", {}, path), " ", element("span", { class: "muted" }, described.summary || ""));
  const made = element("details", { id: described.operationId || `${method} ${path}` }, title,
    described.description ? element("p", {}, described.description) : null);
  // Filled when it is opened, for there are many.
  made.addEventListener("toggle", () => {
    made.append(...[parameters(described, inputs), body(api, described, inputs), button, out, answers(api, described)].filter(Boolean));
  }, { once: true });
  made.dataset.words = `${method} ${path} ${described.summary || ""} ${described.operationId || ""}`.toLowerCase();
  return made;
}

function show(api) {
  document.getElementById("about").textContent = `${api.info.description || ""} Version ${api.info.version}.`;
  const tags = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((method) => methods[method])) {
      const tag = (methods[method].tags || ["other"])[0];
      if (!tags.has(tag)) tags.set(tag, []);
      tags.get(tag).push(operation(api, method, path, methods[method]));
    }
  }
  const sections = [...tags].map(([tag, operations]) => element("section", {}, element("h2", {}, tag), ...operations));
  document.getElementById("operations").replaceChildren(...sections);
  document.getElementById("find").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase();
    for (const made of document.querySelectorAll("section > details")) made.hidden = !made.dataset.words.includes(words);
    for (const section of sections) section.hidden = !section.querySelector(":scope > details:not([hidden])");
  });
}

fetch("/openapi.json").then((answer) => answer.json()).then(show).catch((e) => {
  document.getElementById("operations").textContent = `The API description cannot be loaded: ${e}`;
});
