<?php
$options = ['header' => 'Authorization: Bearer ips_…', 'timeout' => 10];
echo file_get_contents('https://ip.example/api/v1/ip', false, stream_context_create(['http' => $options]));
