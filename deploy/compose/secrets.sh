#!/bin/sh
# Makes the secrets that compose.yaml names, in ./secrets, unless they are there.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
chmod 700 secrets

drawn() {
	od -An -N32 -tx1 /dev/urandom | tr -d ' \n'
}

[ -s secrets/database_password ] || drawn >secrets/database_password
[ -s secrets/registration_token ] || drawn >secrets/registration_token
[ -s secrets/metrics_token ] || drawn >secrets/metrics_token
# Between the two there is a network of this machine's alone.
[ -s secrets/database_url ] || printf 'postgresql://memrelay:%s@database:5432/memrelay?sslmode=disable' \
	"$(cat secrets/database_password)" >secrets/database_url
# Containers read them as users of their own; the folder is closed to everybody else.
chmod 444 secrets/*
