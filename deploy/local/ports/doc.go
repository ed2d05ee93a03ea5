// Package ports gives a local platform its loopback ports, once and for good.
//
// Job: choose a free port for each name, remember the choice in the data
// directory, and keep other platforms away from it.
//
// Promise: the same name has the same port for the life of the data directory,
// so a component that is restarted is found where it was. Ports lie below the
// kernel's ephemeral range: an outgoing connection never borrows the port of a
// component that is down for a moment. Two platforms never share a port, also
// while parts of one are down: ports come in blocks of 128, and the first port
// of each block is listened on for as long as its platform runs.
//
// Neighbours: boot claims the ports that layout names. Standard library only.
package ports
