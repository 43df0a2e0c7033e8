package dds

import (
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
)

// libraries lists the names of Cyclone DDS 0.10: of ROS 2, and of Debian. Version 11 is not used: it
// did not find Fast DDS in a test.
var libraries = []string{"libddsc.so.0", "libddsc.so.0debian"}

// cyclone holds the functions of the library. Entities are handles; a negative result is an error.
type cyclone struct {
	createDomain      func(domain uint32, config string) int32
	getChildren       func(entity int32, children *int32, size uintptr) int32
	createParticipant func(domain uint32, qos, listener uintptr) int32
	createTopic       func(pp int32, d *descriptor, name string, qos, listener uintptr) int32
	createReader      func(pp, topic int32, qos, listener uintptr) int32
	createListener    func(argument uintptr) uintptr
	deleteListener    func(listener uintptr)
	setDataAvailable  func(listener, callback uintptr)
	remove            func(entity int32) int32
	createQoS         func() uintptr
	deleteQoS         func(qos uintptr)
	setReliability    func(qos uintptr, kind int32, maxBlocking int64)
	setDurability     func(qos uintptr, kind int32)
	setHistory        func(qos uintptr, kind, depth int32)
	getReliability    func(qos unsafe.Pointer, kind *int32, maxBlocking *int64) bool
	getDurability     func(qos unsafe.Pointer, kind *int32) bool
	errorText         func(code int32) string

	// Addresses for cudahost.Call, which is cheaper and used for every message.
	take, returnLoan, takeCDR, sizeOf, payload, releasePayload, release uintptr
}

// descriptor is dds_topic_descriptor_t.
type descriptor struct {
	size, align uint32
	_, _        uint32 // flags, number of keys
	typeName    *byte
	_           unsafe.Pointer // keys
	opCount     uint32
	ops         *[3]uint32
	_           unsafe.Pointer // XML of the type
	_, _        struct {       // type information, type mapping
		_ unsafe.Pointer
		_ uint32
	}
	_ uint32 // data representations
}

// sampleInfo is dds_sample_info_t.
type sampleInfo struct {
	_, _, instanceState   uint32 // states of the sample and the view
	valid                 bool
	source                int64
	instance, publication uint64
	_                     [5]uint32
}

// endpoint is dds_builtintopic_endpoint_t.
type endpoint struct {
	key             [16]byte
	_               [16]byte // participant
	_               uint64   // handle of the participant
	topic, typeName *byte
	qos             unsafe.Pointer
}

// vector is struct iovec.
type vector struct {
	base *byte
	size uintptr
}

const (
	reliable       = 1 // DDS_RELIABILITY_RELIABLE
	transientLocal = 1 // DDS_DURABILITY_TRANSIENT_LOCAL
	keepLast       = 0 // DDS_HISTORY_KEEP_LAST
	aliveInstance  = 16
	anyState       = 1 | 2 | 4 | 8 | 16 | 32 | 64
	publications   = 0x7fff0000 + 3 // DDS_BUILTIN_TOPIC_DCPSPUBLICATION
	domainExists   = -4             // DDS_RETCODE_PRECONDITION_NOT_MET
)

// octetType describes a final type of one octet: DDS_OP_ADR | DDS_OP_TYPE_1BY at offset 0, and
// DDS_OP_RTS.
var octetType = [3]uint32{1<<24 | 1<<16, 0, 0}

func newDescriptor(typeName string) *descriptor {
	return &descriptor{
		size:     1,
		align:    1,
		typeName: &append([]byte(typeName), 0)[0],
		opCount:  2,
		ops:      &octetType,
	}
}

var loadCyclone = sync.OnceValues(func() (*cyclone, error) { return loadFrom(libraries) })

func loadFrom(names []string) (*cyclone, error) {
	const hint = "install Cyclone DDS 0.10 (Debian: libddsc0debian; ROS 2: " +
		"ros-DISTRO-cyclonedds, after setup.bash of ROS)"
	var library uintptr
	var err error
	for _, name := range names {
		if library, err = cudahost.Dlopen(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, robocache.Unsupported("live dds", nil, "DDS needs the library of Cyclone DDS").
			WithCause(err).WithHint(hint)
	}
	c := &cyclone{}
	for _, f := range []struct {
		name string
		to   any
	}{
		{"dds_create_domain", &c.createDomain},
		{"dds_get_children", &c.getChildren},
		{"dds_create_participant", &c.createParticipant},
		{"dds_create_topic", &c.createTopic},
		{"dds_create_reader", &c.createReader},
		{"dds_create_listener", &c.createListener},
		{"dds_delete_listener", &c.deleteListener},
		{"dds_lset_data_available", &c.setDataAvailable},
		{"dds_delete", &c.remove},
		{"dds_create_qos", &c.createQoS},
		{"dds_delete_qos", &c.deleteQoS},
		{"dds_qset_reliability", &c.setReliability},
		{"dds_qset_durability", &c.setDurability},
		{"dds_qset_history", &c.setHistory},
		{"dds_qget_reliability", &c.getReliability},
		{"dds_qget_durability", &c.getDurability},
		{"dds_strretcode", &c.errorText},
		{"dds_take", &c.take},
		{"dds_return_loan", &c.returnLoan},
		{"dds_takecdr", &c.takeCDR},
		{"ddsi_serdata_size", &c.sizeOf},
		{"ddsi_serdata_to_ser_ref", &c.payload},
		{"ddsi_serdata_to_ser_unref", &c.releasePayload},
		{"ddsi_serdata_unref", &c.release},
	} {
		address, err := cudahost.Dlsym(library, f.name)
		if err != nil {
			return nil, robocache.Unsupported("live dds", nil, "this Cyclone DDS has no %s", f.name).
				WithCause(err).
				WithHint(hint)
		}
		if to, ok := f.to.(*uintptr); ok {
			*to = address
		} else {
			cudahost.Bind(f.to, address)
		}
	}
	return c, nil
}

// errorOf returns the error of a function that returned a negative code.
func (c *cyclone) errorOf(action string, code int32) error {
	return robocache.Unsupported("live dds", nil, "Cyclone DDS cannot %s: %s", action,
		c.errorText(code)).WithHint("read what it wrote to standard error; check CYCLONEDDS_URI")
}
