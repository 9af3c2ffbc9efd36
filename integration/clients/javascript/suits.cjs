// suits.cjs [NAME]...: prints a line for each of these libraries, or of all in package.json, that cannot be
// tried with this Node.js, and then ends with 1. The name "hand" is that of hand.mjs, which all of them need. Any
// Node.js has to be able to read this file.
'use strict'
var own = require('./package.json')
var here = process.versions.node

function tooOld (engines) { return parseInt(here) < parseInt(engines.node.replace(/[^0-9.]/g, '')) }

function obstacle (name) {
  if (tooOld(own.engines)) return 'hand.mjs needs Node.js ' + own.engines.node
  if (name === 'hand') return
  var needs = require('./node_modules/' + name + '/package.json') // or it is not installed
  try {
    require(name)
  } catch (e) {
    return 'version ' + needs.version + ' needs Node.js ' + needs.engines.node + ' (' + e.message + ')'
  }
}

function check (name) {
  var why = obstacle(name)
  if (!why) return
  console.log((name === 'hand' ? 'all clients in JavaScript' : name) + ': ' + why + ', this is ' + here)
  process.exitCode = 1
}

var names = process.argv.slice(2)
if (names.length === 0) names = tooOld(own.engines) ? ['hand'] : Object.keys(own.dependencies)
names.forEach(check)
