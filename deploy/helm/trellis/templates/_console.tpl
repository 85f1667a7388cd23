{{/* Console: checks of values, settings, and the volumes of its pod. */}}

{{- define "trellis.consoleCheck" -}}
{{- $its := dig "console" dict .Values.services -}}
{{- if $its.enabled -}}
{{- $proxy := $its.proxy -}}
{{- if and (eq $its.auth "token") (or $proxy.secret $proxy.caSecret $proxy.users $proxy.groups) -}}
{{- fail "services.console.proxy: is for auth proxy, but services.console.auth is token" -}}
{{- end -}}
{{- if and (eq $its.auth "proxy") (not (or $proxy.secret $proxy.caSecret)) -}}
{{- fail "services.console.proxy: needs secret or caSecret: otherwise any client of the port could impersonate any user" -}}
{{- end -}}
{{- if and $proxy.caSecret (not (and $its.tlsSecret (get ($its.settings | default dict) "TRELLIS_CONSOLE_PROXY_NAMES"))) -}}
{{- fail "services.console.proxy.caSecret: needs tlsSecret, and settings with TRELLIS_CONSOLE_PROXY_NAMES" -}}
{{- end -}}
{{- $public := or $its.ingress.enabled $its.httpRoute.enabled -}}
{{- if and $public .Values.networkPolicies.enabled (not $its.from) -}}
{{- fail "services.console.from: needs the pods of the Ingress controller or Gateway, because the NetworkPolicy of the console admits no other client" -}}
{{- end -}}
{{- if and $its.ingress.enabled (not $its.ingress.hosts) -}}
{{- fail "services.console.ingress.hosts: needs a host" -}}
{{- end -}}
{{- if and $its.httpRoute.enabled (not $its.httpRoute.parentRefs) -}}
{{- fail "services.console.httpRoute.parentRefs: needs a Gateway" -}}
{{- end -}}
{{- $believed := eq (toString (get ($its.settings | default dict) "TRELLIS_CONSOLE_SYSTEM_IDENTITIES")) "true" -}}
{{- range $kind := list "users" "groups" -}}
{{- range $name := get $proxy $kind | default list -}}
{{- if and (hasPrefix "system:" $name) (not $believed) -}}
{{- fail (printf "services.console.proxy.%s: %s is reserved by Kubernetes: the console accepts it only with TRELLIS_CONSOLE_SYSTEM_IDENTITIES" $kind $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Public URL of the console behind an Ingress with TLS and one host, so that cookies require TLS; else empty, and the
     console uses the Host header. */}}
{{- define "trellis.consoleUrl" -}}
{{- $ingress := .Values.services.console.ingress -}}
{{- if and $ingress.enabled $ingress.tls (eq (len $ingress.hosts) 1) }}https://{{ first $ingress.hosts }}{{ end -}}
{{- end -}}

{{/* TRELLIS_ variables that only the console reads, as a map */}}
{{- define "trellis.consoleSettings" -}}
{{- $its := .Values.services.console -}}
{{- $found := dict "TRELLIS_CONSOLE_AUTH" $its.auth -}}
{{- with include "trellis.consoleUrl" . }}{{ $_ := set $found "TRELLIS_CONSOLE_URL" . }}{{ end -}}
{{- if $its.proxy.secret }}{{ $_ := set $found "TRELLIS_CONSOLE_PROXY_SECRET_FILE" "/etc/trellis/console-proxy/secret" }}{{ end -}}
{{- if $its.proxy.caSecret }}{{ $_ := set $found "TRELLIS_CONSOLE_PROXY_CA_FILE" "/etc/trellis/console-proxy-ca/ca.crt" }}{{ end -}}
{{- if $its.tlsSecret -}}
{{- $_ := set $found "TRELLIS_CONSOLE_TLS_CERT_FILE" "/etc/trellis/console-tls/tls.crt" -}}
{{- $_ := set $found "TRELLIS_CONSOLE_TLS_KEY_FILE" "/etc/trellis/console-tls/tls.key" -}}
{{- end -}}
{{- if .Values.jaeger.enabled }}{{ $_ := set $found "TRELLIS_JAEGER_URL" (printf "http://%s-jaeger.%s:16686" (include "trellis.fullname" .) .Release.Namespace) }}{{ end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* the volumes of the console's pod: name, mount path, Secret and its keys, as a list under `files` */}}
{{- define "trellis.consoleFiles" -}}
{{- $its := .Values.services.console -}}
{{- $files := list -}}
{{- if $its.proxy.secret }}{{ $files = append $files (dict "name" "console-proxy" "secret" $its.proxy.secret "keys" (list "secret")) }}{{ end -}}
{{- if $its.proxy.caSecret }}{{ $files = append $files (dict "name" "console-proxy-ca" "secret" $its.proxy.caSecret "keys" (list "ca.crt")) }}{{ end -}}
{{- if $its.tlsSecret }}{{ $files = append $files (dict "name" "console-tls" "secret" $its.tlsSecret "keys" (list "tls.crt" "tls.key")) }}{{ end -}}
{{- toYaml (dict "files" $files) -}}
{{- end -}}

{{- define "trellis.consoleVolumes" -}}
{{- if eq .Values.services.console.auth "token" -}}
- {name: api-server, configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}
{{- end -}}
{{- range (include "trellis.consoleFiles" . | fromYaml).files }}
- name: {{ .name }}
  secret:
    secretName: {{ .secret | quote }}
    defaultMode: 0440
    items:
      {{- range .keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}
{{- end -}}

{{- define "trellis.consoleMounts" -}}
{{- if eq .Values.services.console.auth "token" -}}
- {name: api-server, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end -}}
{{- range (include "trellis.consoleFiles" . | fromYaml).files }}
- {name: {{ .name }}, mountPath: /etc/trellis/{{ .name }}, readOnly: true}
{{- end }}
{{- end -}}
