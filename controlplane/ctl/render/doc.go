// Package render shows answers to people and to scripts.
//
// Job: one View in, one of six shapes out: table, wide, json, yaml, name, csv (contract, section 5).
//
// Promise: json and yaml are the whole message under its proto names, in the order of the proto
// file; enums without their prefix; every number a number, 64-bit ones too; a list or map that is
// empty is there and empty, a message that is absent is left out; an instant is RFC 3339 in UTC, a duration
// seconds with an s ("900s"). The
// same answer gives the same bytes. A table cuts nothing that csv shows.
//
// Neighbours: controlplane/ctl makes the views; nothing here speaks to anyone.
package render
