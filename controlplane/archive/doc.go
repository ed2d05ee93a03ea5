// Package archive keeps what leaves etcd: the journals and final reports of
// settled campaigns, older audit, evidence of lotteries.
//
// Job: immutable objects under a name. An object is written once; etcd keeps its
// name, digest and size (core.ArchiveObject), and only after that is the same
// content deleted there. So the order of every user is: Put, commit the object's
// name and digest in etcd, delete the originals.
//
// # Promise
//
// When Put has returned an object, its bytes are on stable storage and under
// their name. A repeat with the same bytes gives the same object, so a leader
// that died between Put and its etcd transaction, and the next one, come to the
// same digest. Other bytes under a name that is taken are ErrDiffers and change
// nothing: not even two replicas that put at once can replace each other's bytes.
// Get gives exactly the bytes that were put, or an error that names the object;
// never a part of them.
//
// # Directory
//
// The one implementation: a directory that all replicas share. An object is a
// gzip file at its name with ".gz" after it. It is written beside its place under
// a name that ends in ".part", synced, and then linked to its own name, which the
// file system refuses when the name is taken; then the folder is synced. A process
// that dies at any point leaves either nothing or a ".part" under no object's name,
// which nobody reads and an operator may delete. The file system must know hard
// links (local ones, NFS, CephFS and EFS do).
//
// # Errors
//
// ErrName: the name does not follow the grammar; a defect of the caller.
// ErrMissing: etcd names an object that is not there. ErrCorrupt: the file is not
// what etcd's digest says. ErrDiffers: another content stands under the name. All
// three of them need a person. ErrUnavailable: the file system did not do its
// part; repeat.
package archive
